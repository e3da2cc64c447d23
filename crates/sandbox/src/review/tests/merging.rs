//! Random trees and random edits: what was saved and applied is what the sandbox saw.
