#![no_main]

outrigger_cargo_fuzz::program!(pem);
