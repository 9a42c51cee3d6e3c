//! Breadth first over all states, each once; the shortest way to a violation, if there is one.

use std::collections::HashSet;

use super::world::{Invariant, Rules, World};

/// More than any variant has; a world that grows past it has lost its bounds.
const STATES_MAX: usize = 2_000_000;

/// What a search found.
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) violation: Option<(Invariant, Vec<String>)>,
}

/// A state, how it was reached, and from where.
struct Node {
    world: Option<World>,
    parent: usize,
    step: String,
}

/// Explores everything `rules` allow.
pub(super) fn explore(rules: &Rules) -> Found {
    let start = World::new(rules);
    let mut seen = HashSet::from([start.compact()]);
    let mut nodes = vec![Node {
        world: Some(start),
        parent: 0,
        step: "the start".to_owned(),
    }];
    let mut next = 0;
    while next < nodes.len() {
        let world = nodes[next].world.take().expect("visited once");
        for (step, successor) in world.successors(rules) {
            if let Some(invariant) = successor.violated(rules) {
                let mut trace = trace(&nodes, next);
                trace.push(step);
                let violation = Some((invariant, trace));
                let states = nodes.len();
                return Found { states, violation };
            }
            if seen.insert(successor.compact()) {
                nodes.push(Node {
                    world: Some(successor),
                    parent: next,
                    step,
                });
            }
        }
        next += 1;
        assert!(nodes.len() < STATES_MAX, "the world has no bounds");
    }
    Found {
        states: nodes.len(),
        violation: None,
    }
}

fn trace(nodes: &[Node], mut at: usize) -> Vec<String> {
    let mut steps = Vec::new();
    while at != 0 {
        steps.push(nodes[at].step.clone());
        at = nodes[at].parent;
    }
    steps.reverse();
    steps
}
