//! One file or link of the host replaced, made or removed, so that it can be finished or undone from any
//! moment.
//!
//! The original is always whole at exactly one place that counts: at its name, beside it, or kept. How far
//! a step came is read from those three places, never remembered:
//!
//! ```text
//!            target      beside it        kept
//! before     original    –  or a part     –
//! swapped    new         original         –
//! after      new         –                original
//! ```
//!
//! The two names are exchanged in one call, and what came out is compared with what was checked: a file
//! that somebody else wrote in between goes back unharmed.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::hand::{Hand, Stop};
use super::place::Place;
use super::refusal::HostDifference;
use crate::beneath;
use crate::review::{FileStamp, SavedEntry};

/// A file or link before and after.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replace<'a> {
    /// Its number among the steps.
    pub(crate) number: usize,
    pub(crate) path: &'a Path,
    pub(crate) before: Option<FileStamp>,
    pub(crate) after: Option<&'a SavedEntry>,
}

/// The places of a step.
struct Spot {
    target: Place,
    beside: Place,
    kept: Place,
}

impl Replace<'_> {
    /// Writes the new file beside the target, unless that is behind us. It must be on disk before `swap`.
    pub(crate) fn stage(&self, hand: &Hand<'_>) -> Result<Option<File>, Stop> {
        let Some(spot) = self.spot_unless_done(hand)? else { return Ok(None) };
        let taken = self.is_taken(&spot)?;
        if !taken && self.give_back_foreign(hand, &spot)? {
            return Err(Stop::Conflict(HostDifference::Changed));
        }
        let Some(after) = self.after else { return Ok(None) };
        if taken || (self.before.is_none() && spot.target.holds(after)?) {
            return Ok(None);
        }
        hand.next();
        spot.beside.remove()?;
        hand.next();
        Ok(spot.beside.write(after, &hand.contents, &spot.target)?)
    }

    /// Puts the new file in place and the original away.
    pub(crate) fn swap(&self, hand: &Hand<'_>) -> Result<(), Stop> {
        let Some(spot) = self.spot_unless_done(hand)? else { return Ok(()) };
        match (self.before, self.after) {
            (None, None) => Ok(()),
            (None, Some(_)) => appear(hand, &spot),
            (Some(before), after) => {
                if !self.is_taken(&spot)? {
                    match after {
                        Some(_) => exchange(hand, &spot, |out| is_file(out, &before))?,
                        None => take_away(hand, &spot, &before)?,
                    }
                }
                keep(hand, &spot)
            }
        }
    }

    /// Puts the original back, whatever `stage` and `swap` had done.
    pub(crate) fn revert(&self, hand: &Hand<'_>) -> Result<(), Stop> {
        let spot = match Place::find(&hand.workspace, self.path) {
            Ok(target) => self.spot(hand, target)?,
            // Without its directory nothing of ours is there.
            Err(error) if beneath::is_absence(error) && self.before.is_none() => return Ok(()),
            Err(error) if beneath::is_absence(error) => return Err(Stop::Conflict(HostDifference::Gone)),
            Err(error) => return Err(error.into()),
        };
        match self.before {
            None => self.vanish(hand, &spot),
            Some(before) if self.is_taken(&spot)? => self.restore(hand, &spot, &before),
            Some(_) if self.give_back_foreign(hand, &spot)? => Ok(()),
            Some(_) => {
                hand.next();
                Ok(spot.beside.remove()?)
            }
        }
    }

    /// Why `revert` would stop, as far as that can be seen before the steps after this one are undone.
    pub(crate) fn hindrance(&self, hand: &Hand<'_>) -> io::Result<Option<HostDifference>> {
        let Ok(target) = Place::find(&hand.workspace, self.path) else { return Ok(None) };
        let spot = self.spot(hand, target)?;
        // A directory is another step's, which is undone before this one, or stops this one then.
        let now = spot.target.stamp()?.filter(|now| !now.is_directory());
        if self.before.is_some() && (!self.is_taken(&spot)? || spot.target.equals(&spot.kept)?) {
            return Ok(None);
        }
        Ok(match (self.after, now) {
            (None, now) => now.map(|_| HostDifference::Appeared),
            (Some(_), None) => self.before.map(|_| HostDifference::Gone),
            (Some(after), Some(_)) => (!spot.target.holds(after)?).then_some(HostDifference::Changed),
        })
    }

    /// `None` when the original is kept and its directory has gone or been replaced since.
    fn spot_unless_done(&self, hand: &Hand<'_>) -> Result<Option<Spot>, Stop> {
        match Place::find(&hand.workspace, self.path) {
            Ok(target) => Ok(Some(self.spot(hand, target)?)),
            Err(error) if beneath::is_absence(error) && hand.kept(self.number)?.stamp()?.is_some() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn spot(&self, hand: &Hand<'_>, target: Place) -> io::Result<Spot> {
        let beside = target.beside(hand.temporary(self.number))?;
        Ok(Spot { target, beside, kept: hand.kept(self.number)? })
    }

    /// Whether the original is no longer at its name.
    fn is_taken(&self, spot: &Spot) -> io::Result<bool> {
        let Some(before) = self.before else { return Ok(false) };
        Ok(spot.kept.stamp()?.is_some() || is_file(&spot.beside, &before)?)
    }

    /// After a crash between an exchange and the look at what came out, a file of somebody else may lie
    /// beside the target. Whether it did, and went back.
    fn give_back_foreign(&self, hand: &Hand<'_>, spot: &Spot) -> Result<bool, Stop> {
        if self.before.is_none() || spot.beside.stamp()?.is_none() {
            return Ok(false);
        }
        match self.after {
            Some(after) if !spot.target.holds(after)? => return Ok(false),
            Some(_) => {
                hand.next();
                spot.beside.exchange(&spot.target)?;
                spot.beside.remove()?;
            }
            None => {
                hand.next();
                spot.beside.move_to(&spot.target)?;
            }
        }
        Ok(true)
    }

    /// Removes what was new. What is there but not ours was there before, or is somebody's by now.
    fn vanish(&self, hand: &Hand<'_>, spot: &Spot) -> Result<(), Stop> {
        hand.next();
        spot.beside.remove()?;
        let ours = spot.target.stamp()?.is_some_and(|now| !now.is_directory());
        let Some(after) = self.after.filter(|_| ours) else { return Ok(()) };
        hand.next();
        spot.target.move_to(&spot.beside)?;
        if !spot.beside.holds(after)? {
            return Ok(spot.beside.move_to(&spot.target)?);
        }
        hand.next();
        Ok(spot.beside.remove()?)
    }

    fn restore(&self, hand: &Hand<'_>, spot: &Spot, before: &FileStamp) -> Result<(), Stop> {
        // Where the original had to be copied, an earlier undo may have come this far.
        if !spot.target.equals(&spot.kept)? {
            if let Some(difference) = self.hindrance(hand)? {
                return Err(Stop::Conflict(difference));
            }
            if !is_file(&spot.beside, before)? {
                hand.next();
                spot.beside.remove()?;
                hand.next();
                move_or_copy(&spot.kept, &spot.beside)?;
            }
            match self.after {
                Some(after) => exchange(hand, spot, |out| out.holds(after))?,
                None => appear(hand, spot)?,
            }
        }
        hand.next();
        spot.beside.remove()?;
        hand.next();
        Ok(spot.kept.remove()?)
    }
}

fn is_file(place: &Place, stamp: &FileStamp) -> io::Result<bool> {
    Ok(place.stamp()?.is_some_and(|now| stamp.is_same_file(&now)))
}

/// Trades target and what lies beside it, and back again if what came out is not what was expected.
fn exchange(hand: &Hand<'_>, spot: &Spot, expected: impl Fn(&Place) -> io::Result<bool>) -> Result<(), Stop> {
    hand.next();
    spot.beside.exchange(&spot.target).map_err(|error| match error {
        Errno::NOENT => Stop::Conflict(HostDifference::Gone),
        error => error.into(),
    })?;
    hand.next();
    if expected(&spot.beside)? {
        return Ok(());
    }
    spot.beside.exchange(&spot.target)?;
    spot.beside.remove()?;
    Err(Stop::Conflict(HostDifference::Changed))
}

/// Moves the target aside, and back again if it is not what was expected.
fn take_away(hand: &Hand<'_>, spot: &Spot, before: &FileStamp) -> Result<(), Stop> {
    hand.next();
    spot.target.move_to(&spot.beside).map_err(|error| match error {
        Errno::NOENT => Stop::Conflict(HostDifference::Gone),
        error => error.into(),
    })?;
    hand.next();
    if is_file(&spot.beside, before)? {
        return Ok(());
    }
    spot.beside.move_to(&spot.target)?;
    Err(Stop::Conflict(HostDifference::Changed))
}

/// Moves the new file to where nothing may be.
fn appear(hand: &Hand<'_>, spot: &Spot) -> Result<(), Stop> {
    if spot.beside.stamp()?.is_none() {
        return Ok(());
    }
    hand.next();
    spot.beside.move_to(&spot.target).map_err(occupied)
}

/// Puts the original, which lies beside the target, where it is kept.
fn keep(hand: &Hand<'_>, spot: &Spot) -> Result<(), Stop> {
    if spot.kept.stamp()?.is_none() {
        hand.next();
        move_or_copy(&spot.beside, &spot.kept)?;
    }
    hand.next();
    Ok(spot.beside.remove()?)
}

/// Moves within a file system; copies to another one, where the copy appears as a whole.
fn move_or_copy(from: &Place, to: &Place) -> Result<(), Stop> {
    match from.move_to(to) {
        Err(Errno::XDEV) => {}
        other => return Ok(other?),
    }
    let mut partial = to.name.clone();
    partial.push(".part");
    let partial = to.beside(partial)?;
    partial.remove()?;
    partial.copy_of(from)?;
    partial.move_to(to)?;
    Ok(to.sync_directory()?)
}

fn occupied(error: Errno) -> Stop {
    match error {
        Errno::EXIST => Stop::Conflict(HostDifference::Appeared),
        error => error.into(),
    }
}
