//! What `verify` tells apart.
