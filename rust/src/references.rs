//! Parts of a text that name other parts: how deep a reader that follows names can get, and how
//! much there is when each name stands for what it names.

/// Parts that name others, themselves too.
#[derive(Default)]
pub struct References {
    own: Vec<u64>,
    named: Vec<Vec<usize>>,
}

const UNSEEN: usize = usize::MAX;

/// The knowledge of Tarjan's walk about a part.
#[derive(Clone, Copy)]
struct Visit {
    index: usize,
    low: usize,
    is_open: bool,
}

impl References {
    /// A part with levels of its own.
    pub fn add(&mut self, own: u64) -> usize {
        self.own.push(own);
        self.named.push(Vec::new());
        self.own.len() - 1
    }

    pub fn raise(&mut self, part: usize, own: u64) {
        self.own[part] = self.own[part].max(own);
    }

    pub fn link(&mut self, from: usize, to: usize) {
        self.named[from].push(to);
    }

    /// Levels that a reader is in at a time, at most, if it enters each part once in any order: all
    /// levels of parts that name each other in a circle can be entered.
    pub fn levels(&self) -> u64 {
        let mut deepest = vec![0u64; self.own.len()];
        let mut all = 0;
        for circle in self.circles() {
            let own: u64 = circle.iter().fold(0, |sum, part| sum.saturating_add(self.own[*part]));
            let below = circle
                .iter()
                .flat_map(|part| &self.named[*part])
                .filter(|part| circle.binary_search(part).is_err())
                .map(|part| deepest[*part])
                .max()
                .unwrap_or(0);
            for part in &circle {
                deepest[*part] = own.saturating_add(below);
            }
            all = all.max(own.saturating_add(below));
        }
        all
    }

    /// The size of each part when names are replaced by what they name; a circle counts once.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes = vec![0u64; self.own.len()];
        for circle in self.circles() {
            let mut sum = 0u64;
            for part in &circle {
                sum = sum.saturating_add(self.own[*part]);
                for named in &self.named[*part] {
                    if circle.binary_search(named).is_err() {
                        sum = sum.saturating_add(sizes[*named]);
                    }
                }
            }
            for part in &circle {
                sizes[*part] = sum;
            }
        }
        sizes
    }

    /// The first part that names itself, directly or through others.
    pub fn circular(&self) -> Option<usize> {
        let mut parts = self.circles().into_iter().filter_map(|circle| match circle.as_slice() {
            [part] if !self.named[*part].contains(part) => None,
            parts => parts.first().copied(),
        });
        parts.next()
    }

    /// Parts that name each other, directly or not, together and in order; what a circle names
    /// comes before it. Tarjan's algorithm with a stack of its own.
    fn circles(&self) -> Vec<Vec<usize>> {
        let mut visits = vec![Visit { index: UNSEEN, low: 0, is_open: false }; self.own.len()];
        let mut circles = Vec::new();
        let mut open = Vec::new();
        let mut count = 0;
        for root in 0..self.own.len() {
            let mut path = vec![(root, 0)];
            while let Some((part, at)) = path.pop() {
                if at == 0 {
                    if visits[part].index != UNSEEN {
                        continue;
                    }
                    visits[part] = Visit { index: count, low: count, is_open: true };
                    count += 1;
                    open.push(part);
                }
                if at > 0 {
                    let last = visits[self.named[part][at - 1]];
                    if last.is_open {
                        visits[part].low = visits[part].low.min(last.low);
                    }
                }
                if let Some(next) = self.named[part].get(at) {
                    path.push((part, at + 1));
                    if visits[*next].index == UNSEEN {
                        path.push((*next, 0));
                    }
                    continue;
                }
                if visits[part].low == visits[part].index {
                    let begin = open.iter().rposition(|one| *one == part).unwrap_or(0);
                    let mut circle = open.split_off(begin);
                    circle.iter().for_each(|one| visits[*one].is_open = false);
                    circle.sort_unstable();
                    circles.push(circle);
                }
            }
        }
        circles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(own: &[u64], links: &[(usize, usize)]) -> References {
        let mut references = References::default();
        own.iter().for_each(|levels| {
            references.add(*levels);
        });
        links.iter().for_each(|(from, to)| references.link(*from, *to));
        references
    }

    #[test]
    fn the_longest_chain_counts() {
        let references = graph(&[1, 2, 4, 8], &[(0, 1), (1, 2), (0, 3)]);
        assert_eq!(references.levels(), 9);
        assert_eq!(references.sizes(), [15, 6, 4, 8]);
    }

    #[test]
    fn a_circle_counts_as_a_whole() {
        let references = graph(&[1, 2, 4, 8], &[(0, 1), (1, 2), (2, 1), (2, 3), (3, 3)]);
        assert_eq!(references.levels(), 15);
        assert_eq!(references.circular(), Some(3));
        assert_eq!(graph(&[1; 4], &[(0, 1), (1, 2), (2, 1)]).circular(), Some(1));
        assert_eq!(graph(&[1; 4], &[(0, 1), (1, 2), (0, 2)]).circular(), None);
    }

    #[test]
    fn names_are_counted_where_they_stand_twice() {
        let links: Vec<_> = (0..40).flat_map(|i| [(i, i + 1), (i, i + 1)]).collect();
        assert_eq!(graph(&[1; 41], &links).sizes()[0], (1 << 41) - 1);
        assert_eq!(graph(&[1; 41], &links).levels(), 41);
    }

    #[test]
    fn long_chains_need_no_stack() {
        let links: Vec<_> = (0..200_000).map(|i| (i, i + 1)).collect();
        assert_eq!(graph(&[1; 200_001], &links).levels(), 200_001);
    }
}
