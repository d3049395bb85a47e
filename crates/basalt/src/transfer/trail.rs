//! Paths of directories that a walk keeps for later.

use std::rc::Rc;

/// A directory by the names that lead to it from where a walk began. It shares all but the last with its parent: what a walk keeps in
/// memory grows with the directories, and not with how deep they are.
#[derive(Clone)]
pub struct Trail(Option<Rc<Step>>);

struct Step {
    before: Trail,
    name: Vec<u8>,
    depth: usize,
}

impl Trail {
    /// Where the walk begins.
    pub fn start() -> Trail {
        Trail(None)
    }

    /// The directory `name` in this one.
    #[must_use]
    pub fn below(&self, name: &[u8]) -> Trail {
        Trail(Some(Rc::new(Step { before: self.clone(), name: name.to_vec(), depth: self.depth() + 1 })))
    }

    /// How many directories it lies below the beginning. Whoever walks bounds it: a trail is dropped step by step, on the stack.
    pub fn depth(&self) -> usize {
        self.0.as_ref().map_or(0, |step| step.depth)
    }

    /// The names from the beginning to here.
    pub fn names(&self) -> Vec<&[u8]> {
        let mut names = Vec::with_capacity(self.depth());
        let mut at = self;
        while let Some(step) = &at.0 {
            names.push(step.name.as_slice());
            at = &step.before;
        }
        names.reverse();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_a_path() {
        let usr = Trail::start().below(b"usr");
        let (bin, share) = (usr.below(b"bin"), usr.below(b"share"));
        assert_eq!(Trail::start().names(), Vec::<&[u8]>::new());
        assert_eq!((bin.names(), bin.depth()), (vec![&b"usr"[..], b"bin"], 2));
        assert_eq!((share.names(), share.depth()), (vec![&b"usr"[..], b"share"], 2));
        drop((usr, bin));
        assert_eq!(share.names().len(), 2);
    }
}
