//! Proofs of RFC 6962, made from all leaves and checked with a few hashes: that a leaf is in a log,
//! and that one log is the beginning of another.

use super::tree::{LogHash, root_of, split};

/// The path from a leaf to the root: the siblings, nearest first. `None` if there is no such leaf.
pub fn prove_inclusion(leaves: &[LogHash], position: usize) -> Option<Vec<LogHash>> {
    leaves.get(position)?;
    let mut path = Vec::new();
    let (mut leaves, mut position) = (leaves, position);
    while leaves.len() > 1 {
        let (left, right) = leaves.split_at(split(leaves.len()));
        let sibling;
        if position < left.len() {
            (leaves, sibling) = (left, right);
        } else {
            position -= left.len();
            (leaves, sibling) = (right, left);
        }
        path.push(root_of(sibling));
    }
    path.reverse();
    Some(path)
}

/// Whether a path leads from a leaf at this place to the root of a log of that size.
pub fn verify_inclusion(
    leaf: &LogHash,
    position: u64,
    size: u64,
    path: &[LogHash],
    root: &LogHash,
) -> bool {
    if position >= size {
        return false;
    }
    let (mut place, mut last) = (position, size - 1);
    let mut hash = *leaf;
    for sibling in path {
        if last == 0 {
            return false;
        }
        if place % 2 == 1 || place == last {
            hash = LogHash::of_node(sibling, &hash);
            // Where the tree is not full, a level without a sibling is passed over.
            while place % 2 == 0 && place != 0 {
                place /= 2;
                last /= 2;
            }
        } else {
            hash = LogHash::of_node(&hash, sibling);
        }
        place /= 2;
        last /= 2;
    }
    last == 0 && hash == *root
}

/// What is needed to see that the first `size` leaves are the beginning of all. `None` if there are
/// fewer.
pub fn prove_consistency(leaves: &[LogHash], size: usize) -> Option<Vec<LogHash>> {
    if size > leaves.len() {
        return None;
    }
    if size == 0 || size == leaves.len() {
        return Some(Vec::new());
    }
    let mut path = Vec::new();
    let (mut leaves, mut size, mut is_whole) = (leaves, size, true);
    while size < leaves.len() {
        let (left, right) = leaves.split_at(split(leaves.len()));
        if size <= left.len() {
            path.push(root_of(right));
            leaves = left;
        } else {
            path.push(root_of(left));
            size -= left.len();
            leaves = right;
            is_whole = false;
        }
    }
    if !is_whole {
        path.push(root_of(leaves));
    }
    path.reverse();
    Some(path)
}

/// Whether a log of `old_size` and `old_root` is the beginning of one of `size` and `root`.
pub fn verify_consistency(
    (old_size, old_root): (u64, &LogHash),
    (size, root): (u64, &LogHash),
    path: &[LogHash],
) -> bool {
    if old_size > size || (old_size == 0 && *old_root != LogHash::of_nothing()) {
        return false;
    }
    if old_size == size || old_size == 0 {
        // Everything continues nothing, and a log is the beginning of itself.
        return path.is_empty() && (old_size == 0 || old_root == root);
    }
    let mut hashes = path.iter();
    let mut first = *old_root;
    if !old_size.is_power_of_two() {
        match hashes.next() {
            Some(hash) => first = *hash,
            None => return false,
        }
    }
    let (mut place, mut last) = (old_size - 1, size - 1);
    while place % 2 == 1 {
        place /= 2;
        last /= 2;
    }
    let (mut old, mut new) = (first, first);
    for hash in hashes {
        if last == 0 {
            return false;
        }
        if place % 2 == 1 || place == last {
            old = LogHash::of_node(hash, &old);
            new = LogHash::of_node(hash, &new);
            while place % 2 == 0 && place != 0 {
                place /= 2;
                last /= 2;
            }
        } else {
            new = LogHash::of_node(&new, hash);
        }
        place /= 2;
        last /= 2;
    }
    last == 0 && old == *old_root && new == *root
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::leaves;
    use super::*;

    // Rule 11.4: a proof of each leaf in each log up to 40 is accepted, and for nothing else.
    #[test]
    fn every_leaf_of_every_log_is_proved_and_no_other() {
        let all = leaves(40);
        for size in 1..=all.len() {
            let log = &all[..size];
            let root = root_of(log);
            for position in 0..size {
                let path = prove_inclusion(log, position).expect("a path");
                let check = |leaf: &LogHash, place: usize, size: usize, path: &[LogHash]| {
                    verify_inclusion(leaf, place as u64, size as u64, path, &root)
                };
                assert!(check(&log[position], position, size, &path));
                let other = LogHash::of_leaf(b"forged");
                assert!(!check(&other, position, size, &path));
                assert!(!check(&log[position], size, size, &path));
                if size > 1 {
                    assert!(!check(&log[position], (position + 1) % size, size, &path));
                    assert!(!check(&log[position], position, size, &path[1..]));
                }
                let longer = [path.clone(), vec![other]].concat();
                assert!(!check(&log[position], position, size, &longer));
            }
        }
    }

    // Rule 11.4: every beginning of every log up to 40 is proved, and nothing else.
    #[test]
    fn every_beginning_of_every_log_is_proved_and_no_other() {
        let all = leaves(40);
        let other = LogHash::of_leaf(b"forged");
        for size in 0..=all.len() {
            let root = root_of(&all[..size]);
            for old in 0..=size {
                let old_root = root_of(&all[..old]);
                let path = prove_consistency(&all[..size], old).expect("a path");
                let check = |old_root: &LogHash, root: &LogHash, path: &[LogHash]| {
                    verify_consistency((old as u64, old_root), (size as u64, root), path)
                };
                assert!(check(&old_root, &root, &path), "{old} of {size}");
                assert!(!check(&other, &root, &path), "{old} of {size}");
                if old > 0 {
                    assert!(!check(&old_root, &other, &path), "{old} of {size}");
                }
                if !path.is_empty() {
                    assert!(!check(&old_root, &root, &path[1..]), "{old} of {size}");
                }
                let longer = [path.clone(), vec![other]].concat();
                assert!(!check(&old_root, &root, &longer), "{old} of {size}");
                let path = prove_consistency(&all[..old], old).expect("a path");
                let shrunk =
                    verify_consistency((size as u64, &root), (old as u64, &old_root), &path);
                assert_eq!(shrunk, size == old, "{size} to {old}");
            }
        }
    }

    #[test]
    fn what_is_not_there_has_no_proof() {
        let all = leaves(5);
        assert_eq!(prove_inclusion(&all, 5), None);
        assert_eq!(prove_consistency(&all, 6), None);
    }
}
