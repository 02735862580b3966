//! Commands that a wrapper cannot simply pass on: those with an address in the answer, and those
//! for several pieces.
//!
//! A task visits the pieces of its command in order, with one command or a reset walk at each.

use super::stack::LinearPiece;
use crate::device::{Command, CommandResult, Context, Output};
use crate::wrap::{ResetStep, ResetWalk};
use zonal_core::{Op, Sector, ZoneDescriptor};

/// A host's command, its present piece, and the results so far.
pub(super) struct Task {
    pub(super) context: Context,
    pub(super) queue: usize,
    pub(super) piece: usize,
    /// As submitted by the host.
    command: Command,
    /// Zones reported so far.
    zones: Vec<ZoneDescriptor>,
    /// Set while resetting a piece that is only part of its device.
    walk: Option<ResetWalk>,
    /// A device has answered, so the command can no longer be returned to the host.
    pub(super) has_begun: bool,
}

/// Next state of a task after an answer.
pub(super) enum Progress {
    End(Context, CommandResult),
    Continues(Task),
}

impl Task {
    /// Creates a task for `command`, which starts in `piece`.
    pub(super) fn new(
        context: Context,
        queue: usize,
        piece: usize,
        command: Command,
        pieces: &[LinearPiece],
    ) -> Task {
        let (zones, walk) = (Vec::new(), None);
        let mut task = Task { context, queue, piece, command, zones, walk, has_begun: false };
        task.arrive(pieces);
        task
    }

    /// Prepares for the present piece.
    fn arrive(&mut self, pieces: &[LinearPiece]) {
        let piece = &pieces[self.piece];
        let walks = self.command.op == Op::ResetAll && !piece.is_whole();
        self.walk = walks.then(|| ResetWalk::new(piece.zones.clone(), []));
    }

    /// Returns the command for the piece's device.
    pub(super) fn command(&self, pieces: &[LinearPiece]) -> Command {
        let piece = &pieces[self.piece];
        let start = |zone| piece.device.info().geometry.start_of(zone);
        match (self.command.op, self.walk.as_ref().map(ResetWalk::step)) {
            (_, Some(ResetStep::Report(zone, zones))) => Command::new(Op::Report, start(zone), zones),
            (_, Some(ResetStep::Reset(zone))) => Command::new(Op::ZoneReset, start(zone), 0),
            (_, Some(ResetStep::End(_))) => unreachable!("a walk that has ended leaves its piece"),
            (Op::Flush | Op::ResetAll, None) => self.command,
            (Op::Report, None) => {
                let first = self.report_from(piece);
                let zone = piece.device.info().geometry.zone_of(first).0;
                let sectors = (piece.zones.end - zone).min(self.wanted());
                Command { sector: first, sectors, ..self.command }
            }
            (_, None) => Command { sector: piece.to_inner(self.command.sector), ..self.command },
        }
    }

    /// Start of a report in the piece: the requested sector in the first piece, the piece's start
    /// in others.
    fn report_from(&self, piece: &LinearPiece) -> Sector {
        match self.zones.is_empty() {
            true => piece.to_inner(self.command.sector),
            false => piece.device.info().geometry.start_of(zonal_core::ZoneIndex(piece.zones.start)),
        }
    }

    /// Number of zones that a report still lacks.
    fn wanted(&self) -> u32 {
        self.command.sectors.saturating_sub(self.zones.len() as u32)
    }

    /// Processes the answer of the piece's device.
    pub(super) fn answered(mut self, result: CommandResult, pieces: &[LinearPiece]) -> Progress {
        self.has_begun = true;
        let piece = &pieces[self.piece];
        if let Some(mut walk) = self.walk.take() {
            walk.answered(result);
            return match walk.step() {
                ResetStep::End(Ok(())) => self.leave(pieces),
                ResetStep::End(Err(error)) => Progress::End(self.context, Err(error)),
                ResetStep::Report(..) | ResetStep::Reset(_) => {
                    self.walk = Some(walk);
                    Progress::Continues(self)
                }
            };
        }
        match (self.command.op, result) {
            (Op::Append, Ok(Output::Appended(at))) => {
                Progress::End(self.context, Ok(Output::Appended(piece.to_outer(at))))
            }
            (Op::Report, Ok(Output::Zones(zones))) => {
                let is_empty = zones.is_empty();
                let (wanted, of_piece) =
                    (self.wanted() as usize, |z: &ZoneDescriptor| piece.zones.contains(&z.zone.0));
                let ours = zones.into_iter().filter(of_piece).take(wanted);
                self.zones.extend(ours.map(|zone| piece.descriptor_to_outer(zone)));
                // A report of fewer zones than requested is valid, too.
                if is_empty || self.wanted() == 0 { self.end() } else { self.leave(pieces) }
            }
            (Op::Flush | Op::ResetAll, Ok(_)) => self.leave(pieces),
            (_, result) => Progress::End(self.context, result),
        }
    }

    /// Continues with the next piece.
    fn leave(mut self, pieces: &[LinearPiece]) -> Progress {
        self.piece += 1;
        if self.piece == pieces.len() {
            return self.end();
        }
        self.arrive(pieces);
        Progress::Continues(self)
    }

    fn end(self) -> Progress {
        let output = match self.command.op {
            Op::Report => Output::Zones(self.zones.into()),
            _ => Output::Done,
        };
        Progress::End(self.context, Ok(output))
    }
}
