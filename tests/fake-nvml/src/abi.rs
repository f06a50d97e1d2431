//! Writing through the caller's pointers, and the few return codes.

use core::ffi::{c_char, c_uint};

pub(crate) use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

pub(crate) const SUCCESS: nvmlReturn_t = 0;
pub(crate) const UNINITIALIZED: nvmlReturn_t = 1;
pub(crate) const INVALID_ARGUMENT: nvmlReturn_t = 2;
pub(crate) const NOT_SUPPORTED: nvmlReturn_t = 3;
pub(crate) const NOT_FOUND: nvmlReturn_t = 6;
pub(crate) const INSUFFICIENT_SIZE: nvmlReturn_t = 7;
pub(crate) const DRIVER_NOT_LOADED: nvmlReturn_t = 9;
pub(crate) const GPU_IS_LOST: nvmlReturn_t = 15;
pub(crate) const ARGUMENT_VERSION_MISMATCH: nvmlReturn_t = 25;

/// What NVML's macro `NVML_STRUCT_VERSION` gives.
pub(crate) fn version_of<T>(number: u32) -> c_uint {
    c_uint::try_from(size_of::<T>()).unwrap_or_default() | (number << 24)
}

/// Answers a value, or that the board lacks it.
///
/// # Safety
/// `out` is null or valid for writing, as NVML's interface asks of the caller.
pub(crate) unsafe fn put<T>(out: *mut T, value: Option<T>) -> nvmlReturn_t {
    let Some(value) = value else {
        return NOT_SUPPORTED;
    };
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, and valid by this function's contract.
    unsafe { out.write(value) };
    SUCCESS
}

/// Answers a text with its final zero.
///
/// # Safety
/// `out` is null or valid for writing `length` bytes.
pub(crate) unsafe fn put_text(out: *mut c_char, length: c_uint, text: &str) -> nvmlReturn_t {
    let length = usize::try_from(length).unwrap_or_default();
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    if text.len() >= length {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: text and zero fit into the `length` bytes that the caller vouches for.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        out.add(text.len()).write(0);
    }
    SUCCESS
}

/// A text in a fixed array of C characters, cut where it does not fit.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (slot, byte) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *slot = c_char::try_from(byte).unwrap_or(63);
    }
    array
}

/// Answers a list in NVML's way: `count` holds the room on entry and the number on return.
///
/// # Safety
/// `count` is null or valid; `out` is null or valid for as many items as `count` says on entry.
pub(crate) unsafe fn put_list<T>(count: *mut c_uint, out: *mut T, list: Vec<T>) -> nvmlReturn_t {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, and valid by this function's contract.
    let room = usize::try_from(unsafe { count.read() }).unwrap_or_default();
    // SAFETY: as above.
    unsafe { count.write(c_uint::try_from(list.len()).unwrap_or(c_uint::MAX)) };
    if list.is_empty() {
        return SUCCESS;
    }
    if list.len() > room || out.is_null() {
        return INSUFFICIENT_SIZE;
    }
    for (at, item) in list.into_iter().enumerate() {
        // SAFETY: `at` is below the room that the caller vouches for.
        unsafe { out.add(at).write(item) };
    }
    SUCCESS
}

/// A symbol that answers one value of a board.
macro_rules! values {
    ($($name:ident: $ty:ty = |$view:ident| $value:expr;)+) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(device: $crate::abi::nvmlDevice_t, out: *mut $ty) -> $crate::abi::nvmlReturn_t {
                fn value($view: &$crate::live::View) -> Option<$ty> {
                    $value
                }
                // SAFETY: `out` comes from the caller of NVML's interface.
                $crate::live::on(stringify!($name), device, |view| unsafe { $crate::abi::put(out, value(view)) })
            }
        )+
    };
}
pub(crate) use values;

/// A symbol that answers one text of a board.
macro_rules! texts {
    ($($name:ident = |$view:ident| $value:expr;)+) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(device: $crate::abi::nvmlDevice_t, out: *mut core::ffi::c_char, length: core::ffi::c_uint) -> $crate::abi::nvmlReturn_t {
                $crate::live::on(stringify!($name), device, |$view| {
                    let text: String = $value;
                    // SAFETY: `out` and `length` come from the caller of NVML's interface.
                    unsafe { $crate::abi::put_text(out, length, &text) }
                })
            }
        )+
    };
}
pub(crate) use texts;
