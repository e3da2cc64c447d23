//! The mock agent against a real model server on loopback, seen through its dialogue.

#[cfg(test)]
mod document;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod text_commands;
