//! A manifest's text into a [`Stage`](crate::stage::Stage).
