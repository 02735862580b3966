//! Requests that completion functions submit: what a caller does who goes on where it hears of an end.

use crate::book::Book;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use zonal_check::rig::{in_pieces, payload};
use zonal_core::{Nanos, Op};
use zonal_io::buffer::IoBuf;
use zonal_io::volume::{Channel, Request, Volume};

/// Notes a request, which gets its number and what it says of itself.
pub fn note(book: &Book, now: Nanos, mut request: Request, proper: bool) -> Request {
    let token = book.next();
    if matches!(request.op, Op::Write | Op::Append) {
        request.buf = in_pieces(payload(token, request.sectors), token);
    } else if request.op == Op::Read {
        request.buf = in_pieces(IoBuf::zeroed(request.sectors * 512), token);
    }
    assert_eq!(book.begin(now, request.op, (request.sector, request.sectors), proper), token);
    request.token(token)
}

/// See the module.
pub struct Successors {
    volume: Weak<Volume>,
    /// Where they end: nobody succeeds them. No completion function runs inside another, so nobody waits for it.
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

    /// A request that the next end of another brings forth.
    pub fn put(&self, request: Request) {
        self.waiting.lock().push_back(request);
    }

    /// There will be no more ends that anybody goes on from.
    pub fn clear(&self) {
        self.waiting.lock().clear();
    }

    /// Another request has ended: this is called by its completion function.
    pub fn one_has_ended(&self) {
        let next = self.waiting.lock().pop_front();
        if let (Some(request), Some(volume)) = (next, self.volume.upgrade()) {
            let now = Nanos(self.now.load(Ordering::Relaxed));
            volume.submit(now, &self.channel.lock(), note(&self.book, now, request, false));
        }
    }
}
