#![no_main]

outrigger_cargo_fuzz::program!(leader_migration);
