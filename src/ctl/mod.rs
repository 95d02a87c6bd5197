//! `hapticctl`: the smallest useful controller, a person with a directory of files.
