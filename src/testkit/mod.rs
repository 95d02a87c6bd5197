//! Fakes for the tests of controllers.
