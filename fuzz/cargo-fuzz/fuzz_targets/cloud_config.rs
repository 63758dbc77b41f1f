#![no_main]

outrigger_cargo_fuzz::program!(cloud_config);
