pub mod dead_letters;
