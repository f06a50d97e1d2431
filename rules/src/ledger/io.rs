//! Bytes that tenants read and wrote: sums of what the judgements name, over the same time as the accounts.

use alloc::borrow::ToOwned;

use gpuprod_snapshot::units::Bytes;

use super::Ledger;
use super::interval::Interval;
use super::tenants::OTHER;
use crate::TenantIo;

impl Ledger {
    /// Adds what was moved; a judgement that comes twice adds once.
    pub(super) fn add_io(&mut self, interval: &Interval, moved: &[TenantIo]) {
        if interval.rest.0 == 0 && interval.unknown.is_empty() {
            return;
        }
        for io in moved {
            let tenant = io.tenant.as_deref().map(|tenant| self.tenants.name(tenant).to_owned());
            self.put_io(TenantIo { tenant, ..io.clone() });
        }
    }

    fn put_io(&mut self, io: TenantIo) {
        match self.io.binary_search_by(|held| held.tenant.cmp(&io.tenant)) {
            Ok(at) => {
                if let Some(held) = self.io.get_mut(at) {
                    held.read = Bytes(held.read.0.saturating_add(io.read.0));
                    held.written = Bytes(held.written.0.saturating_add(io.written.0));
                }
            }
            Err(at) => self.io.insert(at, io),
        }
    }

    /// A tenant goes on as `other`.
    pub(super) fn rename_io(&mut self, tenant: &str) {
        if let Ok(at) = self.io.binary_search_by(|held| held.tenant.as_deref().cmp(&Some(tenant))) {
            let gone = self.io.remove(at);
            self.put_io(TenantIo { tenant: Some(OTHER.to_owned()), ..gone });
        }
    }
}
