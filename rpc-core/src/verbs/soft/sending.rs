use super::config::SGE_MAX;
use super::dma::Span;
use super::env::Env;
use super::packet::{Header, Kind, psn_after};
use super::qp::QpInner;
use super::requester::{Op, Wqe};
use super::sge::SgeList;
use super::table::Id;
use super::tx::Tx;
use crate::verbs::{Psn, Sge, WcStatus};

/// The memory of `count` bytes of a message from byte `from` on, all of it checked.
fn gather(
    env: &Env,
    pd: Id,
    sges: &SgeList,
    from: u32,
    count: u32,
) -> Result<[Option<Span>; SGE_MAX], WcStatus> {
    let mut spans = [None; SGE_MAX];
    let mut done = 0;
    for slot in &mut spans {
        if done == count {
            break;
        }
        let sge = sges.at((from + done).into()).ok_or(WcStatus::LocProtErr)?;
        let span = env.keys.local(env.rules, pd, sge, false).ok_or(WcStatus::LocProtErr)?;
        let span = span.take((count - done) as usize);
        done += span.len() as u32;
        *slot = Some(span);
    }
    if done == count { Ok(spans) } else { Err(WcStatus::LocProtErr) }
}

impl QpInner {
    /// Makes the next request's packet, if it may go.
    pub(super) fn produce_request(&mut self, env: &mut Env, tx: &mut Tx) {
        if !self.may_send(env) {
            return;
        }
        let sent = match self.req.sq.get(self.req.next).map(|wqe| wqe.op) {
            Some(Op::Send { invalidate }) => self.produce_send(env, tx, invalidate),
            Some(Op::Read { addr, key }) => self.produce_read(env, tx, addr, key),
            _ => Ok(()),
        };
        match sent {
            Ok(()) => {
                if self.req.retry_at.is_none() {
                    self.restart_retry_timer(env);
                }
                self.advance(env);
            }
            Err(status) => self.fail_next(env, status),
        }
    }

    /// Gives the next entry its PSNs if it has none.
    fn number_next(&mut self, psns: u32) -> Option<(Psn, &mut Wqe)> {
        let fresh = self.req.psn;
        let wqe = self.req.sq.get_mut(self.req.next)?;
        let first = *wqe.psn.get_or_insert(fresh);
        if first == fresh {
            wqe.psns = psns;
            self.req.psn = psn_after(fresh, psns);
        }
        Some((first, wqe))
    }

    fn produce_send(
        &mut self,
        env: &mut Env,
        tx: &mut Tx,
        invalidate: Option<u32>,
    ) -> Result<(), WcStatus> {
        let (peer, from, pd) = (self.peer, self.req.next_bytes, self.parts.pd);
        let piece_max = env.config.piece_bytes;
        let Some(peer) = peer else { return Ok(()) };
        let psns_of = |len: u32| len.div_ceil(piece_max).max(1);
        let Some(len) = self.req.sq.get(self.req.next).map(|wqe| wqe.len) else { return Ok(()) };
        let Some((first, wqe)) = self.number_next(psns_of(len)) else { return Ok(()) };
        let count = (len - from).min(piece_max);
        let last = from + count == len;
        let header = Header {
            kind: Kind::Send { first: from == 0, last, invalidate: invalidate.filter(|_| last) },
            qp: peer.num,
            psn: psn_after(first, from / piece_max),
            payload: count,
            ack_wanted: last && wqe.wants_answer(),
        };
        let fresh = !wqe.issued;
        if let Some(bytes) = &wqe.inline {
            let piece = bytes.get(from as usize..).unwrap_or_default();
            tx.push_header(&header);
            tx.push_bytes(piece.get(..count as usize).unwrap_or(piece));
        } else {
            let sges = wqe.sges;
            // Everything is checked before the header promises it.
            let spans = gather(env, pd, &sges, from, count)?;
            tx.push_header(&header);
            for span in spans.into_iter().flatten() {
                tx.push_copy(span);
            }
        }
        if last {
            if fresh {
                env.counters.sends += 1;
                env.counters.send_bytes += u64::from(len);
            }
            self.req.sent();
        } else {
            self.req.next_bytes = from + count;
        }
        Ok(())
    }

    fn produce_read(
        &mut self,
        env: &Env,
        tx: &mut Tx,
        addr: u64,
        key: u32,
    ) -> Result<(), WcStatus> {
        let (pd, peer) = (self.parts.pd, self.peer);
        let Some(peer) = peer else { return Ok(()) };
        let Some((psn, wqe)) = self.number_next(1) else { return Ok(()) };
        let lost = |sge: &Sge| env.keys.local(env.rules, pd, *sge, true).is_none();
        if wqe.sges.as_slice().iter().any(lost) {
            return Err(WcStatus::LocProtErr);
        }
        let kind = Kind::ReadRequest { addr, key, len: wqe.len };
        tx.push_header(&Header { kind, qp: peer.num, psn, payload: 0, ack_wanted: true });
        self.req.sent();
        Ok(())
    }
}
