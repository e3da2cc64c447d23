//! The mock agent against a real model server on loopback, seen through its dialogue.

#[cfg(test)]
mod document;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod text_commands;
