//! What a power loss leaves of the model's world.

use crate::store::fs::FileKind;

use super::LoseUnsynced;
use super::world::{Content, Ino, Inode, ROOT, World};

impl World {
    pub(super) fn crash(&self, lose: LoseUnsynced) -> Self {
        let mut dice = match lose {
            LoseUnsynced::Random(seed) => Dice(seed.wrapping_mul(2).wrapping_add(1)),
            LoseUnsynced::Nothing | LoseUnsynced::All => Dice(1),
        };
        let mut after = Self {
            next_mount: self.next_mount,
            clock: self.clock,
            file_mounts: self.file_mounts.clone(),
            links_refused: self.links_refused,
            chown_refused: self.chown_refused,
            max_write: self.max_write,
            capacity: self.capacity,
            inodes: self.inodes.clone(),
            ..Self::new()
        };
        for inode in &mut after.inodes {
            inode.nlink = 0;
            inode.survive(lose, &mut dice);
        }
        let mut named = vec![0; after.inodes.len()];
        after.walk_inos(ROOT, &mut named);
        for (inode, nlink) in after.inodes.iter_mut().zip(named) {
            inode.nlink = nlink;
        }
        after
    }

    fn walk_inos(&self, dir: Ino, named: &mut [u64]) {
        for slot in self.inodes[dir].names.values() {
            let Some(ino) = slot.current() else { continue };
            named[ino] += 1;
            if self.inodes[ino].kind == FileKind::Dir {
                self.walk_inos(ino, named);
            }
        }
    }
}

impl Inode {
    fn survive(&mut self, lose: LoseUnsynced, dice: &mut Dice) {
        if self.kind == FileKind::File {
            let written = self.now.clone();
            let durable = self.synced.clone().unwrap_or(Content {
                bytes: Vec::new(),
                ..written.clone()
            });
            self.now = match lose {
                LoseUnsynced::Nothing => written,
                LoseUnsynced::All => durable,
                LoseUnsynced::Random(_) => match dice.below(3) {
                    0 => written,
                    // A beginning of what was written, unless it was all synced.
                    1 if written.bytes != durable.bytes => {
                        let cut = dice.below(written.bytes.len() + 1);
                        Content {
                            bytes: written.bytes[..cut].to_vec(),
                            ..written
                        }
                    }
                    _ => durable,
                },
            };
            self.synced = Some(self.now.clone());
        }
        for slot in self.names.values_mut() {
            let pick = match lose {
                LoseUnsynced::Nothing => slot.0.len() - 1,
                LoseUnsynced::All => 0,
                LoseUnsynced::Random(_) => dice.below(slot.0.len()),
            };
            slot.0 = vec![slot.0[pick]];
        }
        self.names.retain(|_, slot| slot.current().is_some());
    }
}

/// A small generator; the same seed gives the same losses.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let wide = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(wide).unwrap() % bound
    }
}
