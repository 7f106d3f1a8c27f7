//! Ordered trees of threads without allocation: deadlines and virtual times.
//!
//! A treap over nodes indexed by thread. A thread is in at most one tree that
//! uses the same `Nodes`. Each node also carries a value, and each subtree the
//! least value in it, so that "the first key whose value is at most x" is one
//! walk down (`first_at_most`): EEVDF's earliest eligible deadline.
use super::workload::Tid;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    left: u32,
    right: u32,
    key: i64,
    /// Equal keys keep their order of insertion.
    order: u64,
    value: i64,
    least: i64,
}

#[derive(Debug, Clone, Default)]
pub struct Nodes {
    all: Vec<Node>,
    inserted: u64,
}

impl Nodes {
    pub fn new(nthreads: usize) -> Self {
        let blank = Node {
            left: NONE,
            right: NONE,
            key: 0,
            order: 0,
            value: 0,
            least: 0,
        };
        Self {
            all: vec![blank; nthreads],
            inserted: 0,
        }
    }

    pub fn key(&self, t: Tid) -> i64 {
        self.all[t as usize].key
    }

    /// How many insertions there had been when `t` was inserted.
    pub fn order(&self, t: Tid) -> u64 {
        self.all[t as usize].order
    }

    pub fn value(&self, t: Tid) -> i64 {
        self.all[t as usize].value
    }

    fn before(&self, a: u32, b: u32) -> bool {
        let (x, y) = (&self.all[a as usize], &self.all[b as usize]);
        (x.key, x.order) < (y.key, y.order)
    }

    fn renew(&mut self, at: u32) {
        let n = self.all[at as usize];
        let mut least = n.value;
        if n.left != NONE {
            least = least.min(self.all[n.left as usize].least);
        }
        if n.right != NONE {
            least = least.min(self.all[n.right as usize].least);
        }
        self.all[at as usize].least = least;
    }

    /// Split `at` into what comes before `t` and what comes after.
    fn split(&mut self, at: u32, t: u32) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        if self.before(at, t) {
            let (a, b) = self.split(self.all[at as usize].right, t);
            self.all[at as usize].right = a;
            self.renew(at);
            (at, b)
        } else {
            let (a, b) = self.split(self.all[at as usize].left, t);
            self.all[at as usize].left = b;
            self.renew(at);
            (a, at)
        }
    }

    fn merge(&mut self, a: u32, b: u32) -> u32 {
        if a == NONE {
            return b;
        }
        if b == NONE {
            return a;
        }
        if rank(a) > rank(b) {
            let right = self.merge(self.all[a as usize].right, b);
            self.all[a as usize].right = right;
            self.renew(a);
            a
        } else {
            let left = self.merge(a, self.all[b as usize].left);
            self.all[b as usize].left = left;
            self.renew(b);
            b
        }
    }

    fn insert(&mut self, at: u32, t: u32) -> u32 {
        if at == NONE || rank(t) > rank(at) {
            let (a, b) = self.split(at, t);
            self.all[t as usize].left = a;
            self.all[t as usize].right = b;
            self.renew(t);
            return t;
        }
        if self.before(t, at) {
            let left = self.insert(self.all[at as usize].left, t);
            self.all[at as usize].left = left;
        } else {
            let right = self.insert(self.all[at as usize].right, t);
            self.all[at as usize].right = right;
        }
        self.renew(at);
        at
    }

    fn remove(&mut self, at: u32, t: u32) -> u32 {
        if at == t {
            let n = self.all[at as usize];
            return self.merge(n.left, n.right);
        }
        if self.before(t, at) {
            let left = self.remove(self.all[at as usize].left, t);
            self.all[at as usize].left = left;
        } else {
            let right = self.remove(self.all[at as usize].right, t);
            self.all[at as usize].right = right;
        }
        self.renew(at);
        at
    }
}

/// A fixed shuffle of the thread number: the treap's heap order.
fn rank(t: u32) -> u32 {
    let x = t.wrapping_mul(0x9e37_79b1);
    (x ^ (x >> 15)).wrapping_mul(0x85eb_ca77)
}

/// One tree; all its methods take the nodes it uses.
#[derive(Debug, Clone, Copy)]
pub struct Tree {
    root: u32,
    first: u32,
    len: u32,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            root: NONE,
            first: NONE,
            len: 0,
        }
    }
}

impl Tree {
    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Put `t` in, after those of equal `key`.
    pub fn insert(&mut self, nodes: &mut Nodes, t: Tid, key: i64, value: i64) {
        nodes.inserted += 1;
        let order = nodes.inserted;
        nodes.all[t as usize] = Node {
            left: NONE,
            right: NONE,
            key,
            order,
            value,
            least: value,
        };
        if self.first == NONE || nodes.before(t, self.first) {
            self.first = t;
        }
        self.root = nodes.insert(self.root, t);
        self.len += 1;
    }

    /// Take `t`, which is in this tree, out.
    pub fn remove(&mut self, nodes: &mut Nodes, t: Tid) {
        self.root = nodes.remove(self.root, t);
        self.len -= 1;
        if self.first == t {
            self.first = self.leftmost(nodes);
        }
    }

    fn leftmost(&self, nodes: &Nodes) -> u32 {
        let mut at = self.root;
        if at == NONE {
            return NONE;
        }
        while nodes.all[at as usize].left != NONE {
            at = nodes.all[at as usize].left;
        }
        at
    }

    /// The thread with the least key.
    pub fn first(&self) -> Option<Tid> {
        (self.first != NONE).then_some(self.first)
    }

    /// The least value in the tree.
    pub fn least_value(&self, nodes: &Nodes) -> Option<i64> {
        (self.root != NONE).then(|| nodes.all[self.root as usize].least)
    }

    /// The first thread, by key, whose value `is_low`; `is_low` must hold of
    /// every value below one of which it holds.
    pub fn first_low(&self, nodes: &Nodes, is_low: impl Fn(i64) -> bool) -> Option<Tid> {
        let mut at = self.root;
        if at == NONE || !is_low(nodes.all[at as usize].least) {
            return None;
        }
        loop {
            let n = &nodes.all[at as usize];
            if n.left != NONE && is_low(nodes.all[n.left as usize].least) {
                at = n.left;
            } else if is_low(n.value) {
                return Some(at);
            } else {
                at = n.right;
            }
        }
    }

    /// The thread after the first.
    pub fn second(&self, nodes: &Nodes) -> Option<Tid> {
        let first = self.first();
        let mut found = None;
        self.visit(nodes, |t| {
            found = (Some(t) != first).then_some(t);
            found.is_none()
        });
        found
    }

    /// The threads in order of key, for the rare walks (balancing).
    pub fn visit(&self, nodes: &Nodes, mut each: impl FnMut(Tid) -> bool) {
        fn go(nodes: &Nodes, at: u32, each: &mut impl FnMut(Tid) -> bool) -> bool {
            if at == NONE {
                return true;
            }
            let n = nodes.all[at as usize];
            go(nodes, n.left, each) && each(at) && go(nodes, n.right, each)
        }
        go(nodes, self.root, &mut each);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::*;

    #[test]
    fn agrees_with_a_sorted_list() {
        let n = 60u32;
        let mut rng = Rng::new(3);
        let mut nodes = Nodes::new(n as usize);
        let mut trees = [Tree::default(); 2];
        // (key, order, value, thread) of each tree.
        let mut naive: [Vec<(i64, u64, i64, u32)>; 2] = [Vec::new(), Vec::new()];
        for order in 0..20_000u64 {
            let t = rng.below(u64::from(n)) as u32;
            let which = (t % 2) as usize;
            if let Some(at) = naive[which].iter().position(|x| x.3 == t) {
                naive[which].remove(at);
                trees[which].remove(&mut nodes, t);
            } else {
                let (key, value) = (rng.between(-9, 9), rng.between(0, 30));
                naive[which].push((key, order, value, t));
                trees[which].insert(&mut nodes, t, key, value);
            }
            naive[which].sort_unstable();
            let (tree, list) = (&trees[which], &naive[which]);
            let mut seen = Vec::new();
            tree.visit(&nodes, |t| {
                seen.push(t);
                true
            });
            assert_eq!(seen, list.iter().map(|x| x.3).collect::<Vec<_>>());
            assert_eq!(tree.len(), list.len());
            assert_eq!(tree.first(), list.first().map(|x| x.3));
            assert_eq!(tree.second(&nodes), list.get(1).map(|x| x.3));
            assert_eq!(tree.least_value(&nodes), list.iter().map(|x| x.2).min());
            let bound = rng.between(0, 30);
            let want = list.iter().find(|x| x.2 <= bound).map(|x| x.3);
            assert_eq!(tree.first_low(&nodes, |v| v <= bound), want);
        }
    }
}
