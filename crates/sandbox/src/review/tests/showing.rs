//! What a person sees of changes.
