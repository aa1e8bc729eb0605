use std::sync::Arc;

use super::*;
use crate::streams::{Entry, EntryId};

fn release(fields: Fields) -> Settle {
    let id = EntryId::new(1, 0);
    let meta = Meta::fresh(id, 1);
    Settle {
        entry: Arc::new(Entry {
            place: Place::source(id),
            fields,
            meta: meta.clone(),
        }),
        settlement: Settlement::Release { meta },
        unowned: false,
    }
}

fn sizes_of_calls(batch: &[Settle]) -> Vec<usize> {
    let numbered = batch.iter().enumerate().collect::<Vec<_>>();
    calls(&numbered).iter().map(|call| call.len()).collect()
}

#[test]
fn calls_end_at_sixty_four_entries() {
    let batch = vec![release(vec![(b"a".to_vec(), b"1".to_vec())]); 130];
    assert_eq!(sizes_of_calls(&batch), [64, 64, 2]);
    assert_eq!(sizes_of_calls(&[]), Vec::<usize>::new());
}

#[test]
fn calls_end_at_one_mebibyte_and_a_larger_entry_goes_alone() {
    let of = |bytes: usize| release(vec![(b"a".to_vec(), vec![0; bytes])]);
    let batch = [of(600_000), of(400_000), of(200_000), of(2_000_000), of(1)];
    assert_eq!(sizes_of_calls(&batch), [2, 1, 1, 1]);
}

#[test]
fn calls_end_at_seven_thousand_values() {
    let wide = release(vec![(Vec::new(), Vec::new()); 1000]);
    assert_eq!(sizes_of_calls(&vec![wide; 4]), [3, 1]);
}

#[test]
fn answers_of_scripts_are_read_in_every_form() {
    let refusal = Value::Array(vec![
        Value::BulkString(b"out".to_vec()),
        Value::BulkString(b"WRONGTYPE Operation against a key".to_vec()),
    ]);
    let reply = Value::Array(vec![Value::Int(1), Value::Int(2), Value::Int(0), refusal]);
    assert_eq!(
        parse_answers(reply, 4).unwrap(),
        [
            Answer::Settled(Settled::Applied),
            Answer::Settled(Settled::AlreadyDone),
            Answer::Settled(Settled::NotOurs),
            Answer::Error {
                key: "out".to_owned(),
                text: "WRONGTYPE Operation against a key".to_owned()
            }
        ]
    );
    assert!(parse_answers(Value::Array(vec![Value::Nil]), 1).is_err());
    let one = Value::Array(vec![Value::Int(1)]);
    assert!(parse_answers(one, 2).is_err(), "nobody is forgotten");
}
