//! Tests of all dialogues: order of events, recorded conversations, and invalid input.

#[cfg(test)]
mod any_lines;
#[cfg(test)]
mod capability;
#[cfg(test)]
mod content;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod drift;
#[cfg(test)]
mod images;
#[cfg(test)]
mod launch;
#[cfg(test)]
mod mock_lines;
#[cfg(test)]
mod modes;
#[cfg(test)]
mod order;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod sub_agents;
