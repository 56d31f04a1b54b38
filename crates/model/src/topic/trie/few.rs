//! The values under one pattern: mostly one, which then needs no memory of its own.

#[derive(Clone, Debug)]
pub(super) enum Few<T> {
    None,
    One(T),
    /// Sorted, so that filing a hundred thousand values under `#` stays cheap.
    Many(Vec<T>),
}

impl<T: Copy + Ord> Few<T> {
    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Few::None => &[],
            Few::One(value) => std::slice::from_ref(value),
            Few::Many(values) => values,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// False when it is there already.
    pub(super) fn insert(&mut self, value: T) -> bool {
        let Err(place) = self.as_slice().binary_search(&value) else { return false };
        match self {
            Few::None => *self = Few::One(value),
            Few::One(first) => {
                *self = Few::Many(if place == 0 { vec![value, *first] } else { vec![*first, value] })
            }
            Few::Many(values) => values.insert(place, value),
        }
        true
    }

    /// False when it is not there.
    pub(super) fn remove(&mut self, value: T) -> bool {
        let Ok(place) = self.as_slice().binary_search(&value) else { return false };
        match self {
            Few::Many(values) if values.len() > 1 => drop(values.remove(place)),
            _ => *self = Few::None,
        }
        true
    }
}
