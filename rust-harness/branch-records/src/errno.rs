//! The names of error numbers, which are the same on arm64 and x86
//! (include/uapi/asm-generic/errno.h), and of those that the kernel keeps to itself
//! (include/linux/errno.h).

/// The name of an error number, given as a positive number.
///
/// ```
/// assert_eq!(branch_records::errno::name(22), Some("EINVAL"));
/// assert_eq!(branch_records::errno::name(524), Some("ENOTSUPP"));
/// assert_eq!(branch_records::errno::name(0), None);
/// ```
pub fn name(number: u16) -> Option<&'static str> {
    let index = NAMES.binary_search_by_key(&number, |(known, _)| *known);
    index.ok().map(|index| NAMES[index].1)
}

/// The number of an error by its name.
///
/// ```
/// assert_eq!(branch_records::errno::number("ENOENT"), Some(2));
/// assert_eq!(branch_records::errno::number("EWOULDBLOCK"), None);
/// ```
pub fn number(name: &str) -> Option<u16> {
    let mut found = NAMES.iter().filter(|(_, known)| *known == name);
    found.next().map(|(number, _)| *number)
}

/// The numbers and names of all errors, sorted by number.
#[rustfmt::skip]
const NAMES: [(u16, &str); 149] = [
    (1, "EPERM"), (2, "ENOENT"), (3, "ESRCH"), (4, "EINTR"), (5, "EIO"), (6, "ENXIO"),
    (7, "E2BIG"), (8, "ENOEXEC"), (9, "EBADF"), (10, "ECHILD"), (11, "EAGAIN"), (12, "ENOMEM"),
    (13, "EACCES"), (14, "EFAULT"), (15, "ENOTBLK"), (16, "EBUSY"), (17, "EEXIST"), (18, "EXDEV"),
    (19, "ENODEV"), (20, "ENOTDIR"), (21, "EISDIR"), (22, "EINVAL"), (23, "ENFILE"),
    (24, "EMFILE"), (25, "ENOTTY"), (26, "ETXTBSY"), (27, "EFBIG"), (28, "ENOSPC"),
    (29, "ESPIPE"), (30, "EROFS"), (31, "EMLINK"), (32, "EPIPE"), (33, "EDOM"), (34, "ERANGE"),
    (35, "EDEADLK"), (36, "ENAMETOOLONG"), (37, "ENOLCK"), (38, "ENOSYS"), (39, "ENOTEMPTY"),
    (40, "ELOOP"), (42, "ENOMSG"), (43, "EIDRM"), (44, "ECHRNG"), (45, "EL2NSYNC"),
    (46, "EL3HLT"), (47, "EL3RST"), (48, "ELNRNG"), (49, "EUNATCH"), (50, "ENOCSI"),
    (51, "EL2HLT"), (52, "EBADE"), (53, "EBADR"), (54, "EXFULL"), (55, "ENOANO"), (56, "EBADRQC"),
    (57, "EBADSLT"), (59, "EBFONT"), (60, "ENOSTR"), (61, "ENODATA"), (62, "ETIME"),
    (63, "ENOSR"), (64, "ENONET"), (65, "ENOPKG"), (66, "EREMOTE"), (67, "ENOLINK"), (68, "EADV"),
    (69, "ESRMNT"), (70, "ECOMM"), (71, "EPROTO"), (72, "EMULTIHOP"), (73, "EDOTDOT"),
    (74, "EBADMSG"), (75, "EOVERFLOW"), (76, "ENOTUNIQ"), (77, "EBADFD"), (78, "EREMCHG"),
    (79, "ELIBACC"), (80, "ELIBBAD"), (81, "ELIBSCN"), (82, "ELIBMAX"), (83, "ELIBEXEC"),
    (84, "EILSEQ"), (85, "ERESTART"), (86, "ESTRPIPE"), (87, "EUSERS"), (88, "ENOTSOCK"),
    (89, "EDESTADDRREQ"), (90, "EMSGSIZE"), (91, "EPROTOTYPE"), (92, "ENOPROTOOPT"),
    (93, "EPROTONOSUPPORT"), (94, "ESOCKTNOSUPPORT"), (95, "EOPNOTSUPP"), (96, "EPFNOSUPPORT"),
    (97, "EAFNOSUPPORT"), (98, "EADDRINUSE"), (99, "EADDRNOTAVAIL"), (100, "ENETDOWN"),
    (101, "ENETUNREACH"), (102, "ENETRESET"), (103, "ECONNABORTED"), (104, "ECONNRESET"),
    (105, "ENOBUFS"), (106, "EISCONN"), (107, "ENOTCONN"), (108, "ESHUTDOWN"),
    (109, "ETOOMANYREFS"), (110, "ETIMEDOUT"), (111, "ECONNREFUSED"), (112, "EHOSTDOWN"),
    (113, "EHOSTUNREACH"), (114, "EALREADY"), (115, "EINPROGRESS"), (116, "ESTALE"),
    (117, "EUCLEAN"), (118, "ENOTNAM"), (119, "ENAVAIL"), (120, "EISNAM"), (121, "EREMOTEIO"),
    (122, "EDQUOT"), (123, "ENOMEDIUM"), (124, "EMEDIUMTYPE"), (125, "ECANCELED"),
    (126, "ENOKEY"), (127, "EKEYEXPIRED"), (128, "EKEYREVOKED"), (129, "EKEYREJECTED"),
    (130, "EOWNERDEAD"), (131, "ENOTRECOVERABLE"), (132, "ERFKILL"), (512, "ERESTARTSYS"),
    (513, "ERESTARTNOINTR"), (514, "ERESTARTNOHAND"), (515, "ENOIOCTLCMD"),
    (516, "ERESTART_RESTARTBLOCK"), (517, "EPROBE_DEFER"), (518, "EOPENSTALE"), (519, "ENOPARAM"),
    (521, "EBADHANDLE"), (522, "ENOTSYNC"), (523, "EBADCOOKIE"), (524, "ENOTSUPP"),
    (525, "ETOOSMALL"), (526, "ESERVERFAULT"), (527, "EBADTYPE"), (528, "EJUKEBOX"),
    (529, "EIOCBQUEUED"), (530, "ERECALLCONFLICT"), (531, "ENOGRACE"),
];
