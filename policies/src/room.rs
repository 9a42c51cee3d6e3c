//! Room to read expressions in: one thread with a large stack for everything that is loaded
//! together, on which each text is parsed once.
//!
//! The generated parser takes much stack, and whoever loads a policy may stand on a small one. A
//! thread for each expression would be the dear part of loading a large set.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::thread;

use crate::expression::{ExpressionError, Parsed};

/// The stack an expression is read on: several times what its bounds allow it to take.
const STACK_BYTES: usize = 32 * 1024 * 1024;

type Read = Result<Rc<Parsed>, ExpressionError>;

/// What was parsed in this room.
#[derive(Debug, Default)]
struct Room {
    texts: HashMap<String, Read>,
    parses: usize,
}

thread_local! {
    /// There is one on the thread of a room, and on no other.
    static ROOM: RefCell<Option<Room>> = const { RefCell::new(None) };
}

#[cfg(test)]
thread_local! {
    /// How many rooms this thread has opened.
    pub(crate) static OPENED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Loads many policies as one: their expressions are read on one thread, each text once. Without
/// it, each file is a load of its own.
pub fn loading<T: Send>(load: impl Fn() -> T + Sync) -> T {
    if is_here() {
        return load();
    }
    #[cfg(test)]
    OPENED.set(OPENED.get() + 1);
    thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        let started = builder.spawn_scoped(scope, || {
            ROOM.set(Some(Room::default()));
            load()
        });
        match started {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // Every expression is refused then, because none can be read.
            Err(_) => load(),
        }
    })
}

fn is_here() -> bool {
    ROOM.with_borrow(Option::is_some)
}

/// What `parse` makes of a text, if there is room for it; asked once for each text of a load.
pub(crate) fn parsed(
    text: &str,
    parse: impl FnOnce(&str) -> Result<Parsed, ExpressionError>,
) -> Read {
    if !is_here() {
        let problem = "the expression cannot be read, because no thread can be started";
        return Err(ExpressionError::new(0, problem, "try again"));
    }
    let before = ROOM.with_borrow(|room| room.as_ref()?.texts.get(text).cloned());
    if let Some(before) = before {
        return before;
    }
    let read = parse(text).map(Rc::new);
    ROOM.with_borrow_mut(|room| {
        if let Some(room) = room {
            room.parses += 1;
            room.texts.insert(text.to_owned(), read.clone());
        }
    });
    read
}

/// How many texts were parsed in this room so far.
#[cfg(test)]
pub(crate) fn parses() -> usize {
    ROOM.with_borrow(|room| room.as_ref().map_or(0, |room| room.parses))
}
