//! Block traces: reading, writing, recording and replaying them.
