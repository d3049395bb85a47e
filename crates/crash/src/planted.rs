//! Bugs planted in the engine: in the one that is shipped, and in the one that threads run on.

use basalt_f2fs::mutant::{self, Mutant};
use basalt_f2fs_shuttled::mutant as shuttled;

/// Switches a planted bug on for this thread, or all off.
pub fn plant(planted: Option<Mutant>) {
    mutant::activate(planted);
    // Both are compiled from the same list.
    let place = planted.and_then(|planted| Mutant::ALL.iter().position(|mutant| *mutant == planted));
    shuttled::activate(place.map(|place| shuttled::Mutant::ALL[place]));
}
