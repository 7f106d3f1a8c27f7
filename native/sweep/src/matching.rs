//! How many waiting threads more could run than idle CPUs are about to pick up?
use rustc_hash::FxHashMap;

/// Threads by the CPUs they may use: classes, and atoms: groups of CPUs alike to all classes.
pub struct Masks {
    /// Of each class, the atoms that it may use. The first class may use all.
    pub atoms: Vec<Vec<usize>>,
    pub natoms: usize,
}

impl Masks {
    pub fn nclasses(&self) -> usize {
        self.atoms.len()
    }
}

/// What counts: CPUs spare by atom, threads waiting by class, and threads that an
/// idle CPU is about to pick up, by atom and class.
#[derive(Default)]
pub struct Matching {
    known: FxHashMap<Vec<u32>, u32>,
    row: Vec<u32>,
}

impl Matching {
    pub fn most(
        &mut self,
        masks: &Masks,
        spare: &[u32],
        surplus: impl Fn(usize) -> u32,
        picked: &[u32],
    ) -> u32 {
        let nclasses = masks.nclasses();
        let total: u32 = spare.iter().sum();
        let plain = total.min(surplus(0));
        // If every waiting thread may use all CPUs, numbers are enough.
        let hard = nclasses > 1
            && total > 0
            && ((1..nclasses).any(|k| surplus(k) > 0)
                || picked
                    .chunks(nclasses)
                    .any(|atom| atom[1..].iter().any(|n| *n > 0)));
        if !hard {
            return plain;
        }
        self.row.clear();
        self.row.extend(spare);
        self.row.extend((0..nclasses).map(surplus));
        self.row.extend(picked);
        if let Some(answer) = self.known.get(self.row.as_slice()) {
            return *answer;
        }
        let answer = largest(masks, &self.row);
        if self.known.len() >= 1 << 16 {
            self.known.clear();
        }
        self.known.insert(self.row.clone(), answer);
        answer
    }
}

/// The largest matching, less those picked up anyway, by augmenting paths over classes
/// and atoms: both are few.
fn largest(masks: &Masks, row: &[u32]) -> u32 {
    let (natoms, nclasses) = (masks.natoms, masks.nclasses());
    let (spare, rest) = row.split_at(natoms);
    let (surplus, picked) = rest.split_at(nclasses);
    let mut free: Vec<u32> = (0..natoms)
        .map(|a| spare[a] + picked[a * nclasses..][..nclasses].iter().sum::<u32>())
        .collect();
    let mut waiting: Vec<u32> = (0..nclasses)
        .map(|k| surplus[k] + (0..natoms).map(|a| picked[a * nclasses + k]).sum::<u32>())
        .collect();
    let mut flow = vec![vec![0u32; natoms]; nclasses];
    let mut sum = 0;
    while let Some(path) = augmenting(masks, &waiting, &free, &flow) {
        // From the atom with room back to the class with a remaining thread.
        let by = path.limit(&waiting, &free, &flow);
        for &(class, atom, adds) in &path.edges {
            if adds {
                flow[class][atom] += by
            } else {
                flow[class][atom] -= by
            }
        }
        waiting[path.class] -= by;
        free[path.atom] -= by;
        sum += by;
    }
    // A mask that was changed after it was recorded may forbid the CPU that a thread waits for.
    sum.saturating_sub(picked.iter().sum())
}

struct Path {
    class: usize,
    atom: usize,
    /// Class, atom, and whether the flow between them grows.
    edges: Vec<(usize, usize, bool)>,
}

impl Path {
    fn limit(&self, waiting: &[u32], free: &[u32], flow: &[Vec<u32>]) -> u32 {
        let turned = self.edges.iter().filter(|(_, _, adds)| !adds);
        turned
            .map(|(class, atom, _)| flow[*class][*atom])
            .fold(waiting[self.class].min(free[self.atom]), u32::min)
    }
}

fn augmenting(masks: &Masks, waiting: &[u32], free: &[u32], flow: &[Vec<u32>]) -> Option<Path> {
    let (nclasses, natoms) = (masks.nclasses(), masks.natoms);
    // Nodes: classes, then atoms. Whence each was reached; itself for a start.
    let mut came: Vec<Option<usize>> = vec![None; nclasses + natoms];
    let mut queue: Vec<usize> = (0..nclasses).filter(|k| waiting[*k] > 0).collect();
    for node in &queue {
        came[*node] = Some(*node);
    }
    let mut at = 0;
    while at < queue.len() {
        let node = queue[at];
        at += 1;
        let following: Vec<usize> = if node < nclasses {
            masks.atoms[node]
                .iter()
                .map(|atom| nclasses + atom)
                .collect()
        } else if free[node - nclasses] > 0 {
            return Some(back(&came, node, nclasses));
        } else {
            (0..nclasses)
                .filter(|k| flow[*k][node - nclasses] > 0)
                .collect()
        };
        for other in following {
            if came[other].is_none() {
                came[other] = Some(node);
                queue.push(other);
            }
        }
    }
    None
}

fn back(came: &[Option<usize>], goal: usize, nclasses: usize) -> Path {
    let (mut node, mut edges) = (goal, Vec::new());
    while let Some(before) = came[node].filter(|before| *before != node) {
        if node >= nclasses {
            edges.push((before, node - nclasses, true));
        } else {
            edges.push((node, before - nclasses, false));
        }
        node = before;
    }
    Path {
        class: node,
        atom: goal - nclasses,
        edges,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All assignments of threads to CPUs, one after the other.
    fn tried(masks: &Masks, cpus: &[usize], threads: &[usize]) -> u32 {
        let Some((class, rest)) = threads.split_first() else {
            return 0;
        };
        let mut best = tried(masks, cpus, rest);
        for (at, atom) in cpus.iter().enumerate() {
            if masks.atoms[*class].contains(atom) {
                let mut left = cpus.to_vec();
                left.remove(at);
                best = best.max(1 + tried(masks, &left, rest));
            }
        }
        best
    }

    #[test]
    fn finds_as_many_as_trying_all() {
        let masks = Masks {
            atoms: vec![vec![0, 1, 2], vec![0], vec![0, 1], vec![2]],
            natoms: 3,
        };
        let mut seed = 7u32;
        let mut random = |n: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % n
        };
        for _ in 0..300 {
            let spare: Vec<u32> = (0..3).map(|_| random(3)).collect();
            let surplus: Vec<u32> = (0..4).map(|_| random(3)).collect();
            let cpus: Vec<usize> = (0..3)
                .flat_map(|a| std::iter::repeat_n(a, spare[a] as usize))
                .collect();
            let threads: Vec<usize> = (0..4)
                .flat_map(|k| std::iter::repeat_n(k, surplus[k] as usize))
                .collect();
            let most = Matching::default().most(&masks, &spare, |k| surplus[k], &[0; 12]);
            assert_eq!(
                most,
                tried(&masks, &cpus, &threads),
                "{spare:?} {surplus:?}"
            );
        }
    }
}
