//! Whether two sequences of instants have the same order: the pairs that Kendall's tau counts.

/// Of the pairs whose first instants are more than `apart` ns from each other:
/// (how many there are, how many come the other way round in `second`).
///
/// `first` rises. Pairs at one instant of `second` count as in order. Time grows
/// as n log n: a Fenwick tree over the ranks of `second`.
pub fn discordance(first: &[i64], second: &[i64], apart: i64) -> (u64, u64) {
    let n = first.len().min(second.len());
    let mut sorted = second[..n].to_vec();
    sorted.sort_unstable();
    let rank = |v: i64| sorted.partition_point(|x| *x < v);
    let mut tree = vec![0u64; n + 1];
    let (mut entered, mut pairs, mut inversions) = (0usize, 0u64, 0u64);
    for j in 0..n {
        while entered < j && first[j].saturating_sub(first[entered]) > apart {
            let mut at = rank(second[entered]) + 1;
            while at <= n {
                tree[at] += 1;
                at += at & at.wrapping_neg();
            }
            entered += 1;
        }
        // Those up to the value of j itself are in order.
        let mut at = sorted.partition_point(|x| *x <= second[j]);
        let mut before = 0;
        while at > 0 {
            before += tree[at];
            at &= at - 1;
        }
        pairs += entered as u64;
        inversions += entered as u64 - before;
    }
    (pairs, inversions)
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::*;

    #[test]
    fn counts_as_all_pairs_do() {
        let mut rng = Rng::new(7);
        for n in [0usize, 1, 2, 3, 50, 200] {
            let mut first: Vec<i64> = (0..n).map(|_| rng.below(300) as i64).collect();
            first.sort_unstable();
            let second: Vec<i64> = (0..n).map(|_| rng.below(60) as i64).collect();
            for apart in [-1, 0, 5, 1000] {
                let (mut pairs, mut inversions) = (0, 0);
                for j in 0..n {
                    for i in 0..j {
                        if first[j] - first[i] > apart {
                            pairs += 1;
                            inversions += u64::from(second[i] > second[j]);
                        }
                    }
                }
                assert_eq!(discordance(&first, &second, apart), (pairs, inversions));
            }
        }
    }
}
