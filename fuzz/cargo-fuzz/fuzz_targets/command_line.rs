#![no_main]

outrigger_cargo_fuzz::program!(command_line);
