//! What only a real server answers: error codes, ACLs, vanished keys.
