#![no_main]

outrigger_cargo_fuzz::program!(short_text);
