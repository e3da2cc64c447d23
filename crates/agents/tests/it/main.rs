//! The agents' dialogues from outside: order, and what no input may do.

#[cfg(test)]
mod mock_lines;
#[cfg(test)]
mod order;
