//! Memory brought near before it is needed.
//!
//! With ten thousand threads what belongs to one of them is no longer in the caches
//! when its next event comes, and an event that finds nothing near waits for one
//! place after the other. Who will be next is known early: reading a little of what
//! it will need, all places at once and without waiting for what is read, takes that
//! time out of the event.

/// Takes what was read for no other purpose than that its place be near.
#[inline(always)]
pub fn near<T: Copy>(read: T) {
    std::hint::black_box(read);
}
