//! The mock agent with a real model server on loopback.

#[cfg(test)]
mod document;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod text_commands;
