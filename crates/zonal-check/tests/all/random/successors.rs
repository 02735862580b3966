//! Requests submitted by completion functions, as a caller does that continues on completion.

use crate::random::book::{Asked, Book};
use crate::random::face::Face;
use crate::random::interfere::SECTORS_MAX;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use zonal_check::rig::{in_pieces, payload};
use zonal_core::{Geometry, Nanos, Op};
use zonal_io::buffer::IoBuf;
use zonal_io::volume::{Channel, Request, Volume};

/// Records a request in the volume's numbers, then gives it its number, a tagged payload, and the
/// numbers of `face`.
pub fn note(
    book: &Book,
    now: Nanos,
    (g, face): (&Geometry, &Face),
    request: Request,
    proper: bool,
) -> Request {
    let token = book.next();
    let Request { op, sector, sectors, .. } = request;
    let mut request = Request { sector: face.here(g, op, sector), ..request };
    let has_memory = (1..=SECTORS_MAX).contains(&sectors);
    if matches!(op, Op::Write | Op::Append) && has_memory {
        request.buf = in_pieces(payload(token, sectors), token);
    } else if op == Op::Read && has_memory {
        request.buf = in_pieces(IoBuf::zeroed(sectors * 512), token);
    }
    let asked = Asked { op, sector, sectors, face: face.clone(), refused: face.refuses(g, &request) };
    assert_eq!(book.begin(now, asked, proper), token);
    request.token(token)
}

/// Requests submitted by completion functions. See the module.
pub struct Successors {
    volume: Weak<Volume>,
    /// Channel of these requests. Their completions submit no others. Completion functions do not
    /// nest, so the lock is never contended.
    channel: Mutex<Channel>,
    book: Arc<Book>,
    now: Arc<AtomicU64>,
    waiting: Mutex<VecDeque<Request>>,
}

impl Successors {
    pub fn new(volume: &Arc<Volume>, book: &Arc<Book>, now: &Arc<AtomicU64>) -> Successors {
        let (noted, at) = (book.clone(), now.clone());
        let channel = volume.channel(move |c| noted.end(&c, false, Nanos(at.load(Ordering::Relaxed))));
        let (channel, waiting) = (Mutex::new(channel), Mutex::default());
        let (book, now) = (book.clone(), now.clone());
        Successors { volume: Arc::downgrade(volume), channel, book, now, waiting }
    }

    /// Adds a request to be submitted by the next completion.
    pub fn put(&self, request: Request) {
        self.waiting.lock().push_back(request);
    }

    /// Drops the waiting requests, because no completion will submit them.
    pub fn clear(&self) {
        self.waiting.lock().clear();
    }

    /// Called by the completion function of another request.
    pub fn one_has_ended(&self) {
        let next = self.waiting.lock().pop_front();
        if let (Some(request), Some(volume)) = (next, self.volume.upgrade()) {
            let now = Nanos(self.now.load(Ordering::Relaxed));
            let g = volume.info().geometry;
            let request = note(&self.book, now, (&g, &Face::volume(g.zones())), request, false);
            volume.submit(now, &self.channel.lock(), request);
        }
    }
}
