//! Objects that a scheduler makes, and its trees of them (bpf_obj_new_impl, bpf_obj_drop_impl,
//! bpf_rbtree_add_impl, bpf_rbtree_remove and bpf_rbtree_first of kernel/bpf/helpers.c, Linux
//! 6.12). A tree is its nodes in order: where one goes is asked of the scheduler as often as a
//! balanced tree would ask.
use rustc_hash::FxHashMap;

use super::fault::Fault;
use super::memory::{Access, Memory, address, split};

/// Objects that a scheduler may have.
const MOST: usize = 1 << 16;
/// Of one, in bytes.
const LARGEST: u32 = 4096;

#[derive(Debug, Default)]
pub struct Trees {
    /// Region of the objects, once there is one.
    region: u32,
    used: u32,
    /// Size of each object there is, by its address; places of those that are gone, by size.
    objects: FxHashMap<u64, u32>,
    free: FxHashMap<u32, Vec<u64>>,
    /// The nodes of each root, and the root of each node.
    nodes: FxHashMap<u64, Vec<u64>>,
    root_of: FxHashMap<u64, u64>,
}

impl Trees {
    /// An object full of zeroes; 0 if there can be no more.
    pub fn create(&mut self, m: &mut Memory, size: u32) -> Result<u64, Fault> {
        if size == 0 || size > LARGEST {
            return Err(Fault::new(format!("makes an object of {size} bytes")));
        }
        let size = size.next_multiple_of(8);
        if self.objects.len() >= MOST {
            return Ok(0);
        }
        if self.region == 0 {
            self.region = m.add("its objects", 0, Access::Write)?;
        }
        let at = match self.free.get_mut(&size).and_then(Vec::pop) {
            Some(at) => at,
            None => {
                let at = address(self.region, self.used);
                m.grow(self.region, (self.used + size) as usize)?;
                self.used += size;
                at
            }
        };
        m.write_from(at, &vec![0; size as usize])?;
        self.objects.insert(at, size);
        Ok(at)
    }

    pub fn drop(&mut self, at: u64) -> Result<(), Fault> {
        let Some(size) = self.objects.remove(&at) else {
            return Err(Fault::new(format!("drops {at:#x}, which is no object")));
        };
        // What is in a tree is not to be dropped: the verifier sees to that.
        for within in (0..u64::from(size)).step_by(8) {
            if self.root_of.contains_key(&(at + within)) {
                return Err(Fault::new("drops an object that is in a tree"));
            }
        }
        self.free.entry(size).or_default().push(at);
        Ok(())
    }

    /// The nodes that a new one is to be compared with; `None` if it is in a tree.
    pub fn add(&self, root: u64, node: u64) -> Result<Option<Vec<u64>>, Fault> {
        if split(node).0 != self.region || self.region == 0 {
            return Err(Fault::new(format!("adds {node:#x}, which is in no object")));
        }
        if self.root_of.contains_key(&node) {
            return Ok(None);
        }
        Ok(Some(self.nodes.get(&root).cloned().unwrap_or_default()))
    }

    pub fn put(&mut self, root: u64, node: u64, at: usize) {
        // Comparing may have put it there already.
        if self.root_of.contains_key(&node) {
            return;
        }
        let nodes = self.nodes.entry(root).or_default();
        nodes.insert(at.min(nodes.len()), node);
        self.root_of.insert(node, root);
    }

    /// The node if it was in this tree, else 0.
    pub fn remove(&mut self, root: u64, node: u64) -> u64 {
        if self.root_of.get(&node) != Some(&root) {
            return 0;
        }
        self.root_of.remove(&node);
        if let Some(nodes) = self.nodes.get_mut(&root) {
            nodes.retain(|held| *held != node);
        }
        node
    }

    pub fn first(&self, root: u64) -> u64 {
        let nodes = self.nodes.get(&root);
        nodes.and_then(|nodes| nodes.first().copied()).unwrap_or(0)
    }
}
