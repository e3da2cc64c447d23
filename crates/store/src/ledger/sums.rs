//! The sums that one transaction changes, changed once however many steps it takes.
//!
//! Calls that come together mostly change the same sums: those of their session, their account and the day. What
//! they add is gathered here and written when the last step is taken.

use std::collections::HashMap;

use rusqlite::Connection;

use super::LedgerError;
use super::limit::{LimitScope, LimitWindow};
use super::totals::{self, Difference};

/// Whose sum, in which window.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) scope: LimitScope,
    pub(super) name: String,
    pub(super) window: LimitWindow,
    pub(super) number: i64,
}

/// What the steps of a transaction add.
#[derive(Debug, Default)]
pub(super) struct Sums {
    gathered: HashMap<Place, Difference>,
    /// Of the step that is being taken.
    step: Vec<(Place, Difference)>,
}

impl Sums {
    /// Adds `difference` if the step is taken.
    pub(super) fn add(&mut self, place: Place, difference: Difference) {
        self.step.push((place, difference));
    }

    /// The step was taken, or left no trace.
    pub(super) fn end_step(&mut self, taken: bool) {
        for (place, difference) in self.step.drain(..) {
            if taken {
                let sum = self.gathered.entry(place).or_default();
                *sum = sum.plus(difference);
            }
        }
    }

    /// Writes everything that was gathered.
    pub(super) fn write(self, connection: &Connection) -> Result<(), LedgerError> {
        self.gathered.iter().try_for_each(|(place, difference)| totals::write(connection, place, *difference))
    }
}
