//! Names of hosts, put away one behind the other: one that has gone leaves its place to the next of the same length.
//!
//! A name of its own on the heap costs half as much again, and leaves holes behind that no one else fits in.

/// Bytes that are had at once.
const SEGMENT: usize = 1 << 16;
/// A name is no longer than DNS allows.
const LEN_MAX: usize = u8::MAX as usize;

/// Where a name is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    segment: u32,
    start: u16,
    len: u8,
}

/// All names.
#[derive(Default)]
pub struct Names {
    segments: Vec<String>,
    /// Places of names that have gone, by their length.
    free: Vec<Vec<Name>>,
    len: usize,
}

impl Names {
    /// Puts a name away. What is longer than a name can be is cut: nobody has a longer one.
    pub fn add(&mut self, name: &str) -> Name {
        let name = name.get(..name.len().min(LEN_MAX)).unwrap_or_default();
        self.len += 1;
        if let Some(place) = self.free.get_mut(name.len()).and_then(Vec::pop) {
            self.segments[place.segment as usize].replace_range(place.range(), name);
            return place;
        }
        if self.segments.last().is_none_or(|last| last.len() + name.len() > SEGMENT) {
            self.segments.push(String::with_capacity(SEGMENT));
        }
        let number = self.segments.len() - 1;
        let segment = &mut self.segments[number];
        let place = Name { segment: number as u32, start: segment.len() as u16, len: name.len() as u8 };
        segment.push_str(name);
        place
    }

    /// The name that is there.
    pub fn get(&self, name: Name) -> &str {
        &self.segments[name.segment as usize][name.range()]
    }

    /// The name is needed no more.
    pub fn remove(&mut self, name: Name) {
        self.len -= 1;
        if self.len == 0 {
            *self = Names::default();
            return;
        }
        let len = usize::from(name.len);
        if self.free.len() <= len {
            self.free.resize_with(len + 1, Vec::new);
        }
        self.free[len].push(name);
    }
}

impl Name {
    fn range(self) -> std::ops::Range<usize> {
        let start = usize::from(self.start);
        start..start + usize::from(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_it_was_put_in_whatever_came_and_went() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut names = Names::default();
        let mut model: Vec<(Name, String)> = Vec::new();
        for round in 0..20_000 {
            if model.is_empty() || rng.u32(..100) < if round < 10_000 { 60 } else { 40 } {
                let len = rng.usize(1..=253);
                let name: String = (0..len).map(|_| rng.alphanumeric()).collect();
                model.push((names.add(&name), name));
            } else {
                let (place, name) = model.swap_remove(rng.usize(..model.len()));
                assert_eq!(names.get(place), name);
                names.remove(place);
            }
            if let Some((place, name)) = model.get(rng.usize(..model.len().max(1))) {
                assert_eq!(names.get(*place), name);
            }
        }
        model.into_iter().for_each(|(place, _)| names.remove(place));
        assert!(names.segments.is_empty() && names.len == 0);
    }

    #[test]
    fn the_place_of_a_name_that_has_gone_is_used_again() {
        let mut names = Names::default();
        let stays = names.add("stays.example");
        for number in 0..100_000 {
            let name = names.add(&format!("host{number:06}.example"));
            names.remove(name);
        }
        assert_eq!((names.segments.len(), names.get(stays)), (1, "stays.example"));
    }
}
