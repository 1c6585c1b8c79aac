// Package dir keeps leases in a directory.
//
// Any number of processes share the leases, on one machine or on several that
// mount the directory. There is no server, and no lock that a stopped process
// could hold.
//
// # Layout
//
//	croft-store.json               the marker: what this is, and its format
//	keys/3f/3f…/LIFE/00…0017.json  a version of a key's record
//	tmp/                           the staging folder, on the same file system
//	acts/3f…                       a key that an operator acted on
//
// "3f…" is the SHA-256 of the key. A version file has two lines: the record in
// JSON, and the checksum of that line. LIFE is a name made of the time and of
// random digits, and is used only once. A key's folder holds the folder of its
// present life and nothing else. A life's folder holds versions and nothing
// else; the version with the highest number counts.
//
// # Every change is one step
//
// To replace version n, a process writes and syncs a file in tmp, and links it
// to the name n+1. link(2) fails if the name exists, so only one of many
// processes gets it. Then the process lists the folder again. The change counts
// only if n+1 is now the highest version. Otherwise the answer is "conflict":
// the caller reads the key again and applies the law again. A change may count
// and be followed by another process's change before the second listing. The
// caller then finds its grant in the record's history.
//
// The second listing protects against a process that was stopped between
// reading n and linking n+1, while others went on and pruned that number. Its
// link succeeds and makes a stray. But nobody removes the highest version of a
// life, so a stray is below it when it is made and for ever after. No reader
// takes a stray for the newest version. Its maker finds out and removes it.
//
// A life begins when a complete folder, with the first version inside, is
// renamed to the key's path. rename(2) fails if a folder that is not empty is
// there.
//
// A life ends by a tombstone: an empty folder with the name n+1. mkdir(2) is as
// exclusive as a link, and the same second listing follows. No version follows
// a tombstone. Then the life's folder is moved to tmp in one step and removed
// there. The process that moves it may have been stopped for any time: the path
// contains the life's name, and the key's next life has another name.
//
// The life's name protects late linkers, too. The key may be dropped, or the
// store wiped, and the key born again between a reading and a linking. The link
// then fails, because the folder that it names is gone. Only rmdir(2) removes
// the key's own folder, and it fails when a life is inside.
//
// None of this rests on a clock, on how long something takes, or on a process
// going on.
//
// A reader looks again at an empty listing before it concludes that nothing is
// remembered. A birth does not rely on that conclusion: the rename decides.
//
// # What reaches the disk
//
// A file is synced before it gets its name, so a record is never torn.
//
// For grants, releases and operators' acts the folder is synced, too, before
// they are confirmed. Only then are older versions pruned.
//
// For renewals and progress reports the folder is not synced. A power cut may
// take back the newest ones, and the lease then ends earlier than its holder
// believed. On a local disk all holders died in the same power cut; over NFS
// the server syncs by itself. Older versions stay until there are more than 16.
// Then the folder is synced before they are pruned.
//
// A process may be killed after it has given a name and before it has synced
// the folder. Three rules cover this:
//
//   - A process that finds its request already done syncs before it says so.
//   - The first version of a life stays until a process has synced the folders
//     that lead to it.
//   - The marker croft-store.json is made last, after everything else that an
//     opening makes has been synced.
//
// A dropped life is removed from tmp only after tmp has been synced. Otherwise
// a power cut could bring the life back without its newest version.
//
// A damaged version is an error that names the file and the repair
// ([DamagedError]), never a reset.
//
// # Goroutines and locks
//
// The protocol needs no lock within a process either: two handles of one
// process behave like two processes. The locks only protect memory.
//
//   - register.mu: the shards known to be durable, and the folders in tmp that
//     wait for removal.
//   - recall.mu: a cache of the records that this handle has read or written.
//   - fsClock.mu: the probe file must not be touched after it is closed.
//   - tidying.mu: when the next tidying is due. At most one goroutine tidies
//     for a handle. It ends after about 200 ms, and Close waits for it.
//   - watcher.mu: the inotify watches. One goroutine reads inotify events for
//     all keys, from the first Watch or Acts until Close.
//
// No function acquires two of these locks at once. The watcher holds its own
// while it calls the hub of package internal/turns.
//
// # Operators' acts
//
// A takeover, a revocation or a reservation leaves a file with the key in acts,
// renamed there from tmp. Holders on the same machine watch that folder by
// inotify, and look at their lease at once. The file is a hint: it is not
// synced, and no act fails without it. Holders on a network mount, and on other
// systems than Linux, learn of acts by their next renewal. Old files are tidied
// away.
//
// # Clock
//
// The store uses the file system's own clock: the modification time that an
// unnamed probe file gets when it is touched. Over NFS this is the server's
// clock. The store reads it after the record, so no record seems younger than
// it is.
//
// # Permissions
//
// A directory that the store makes is its user's alone: 0700, files 0600. A
// directory that existed before and gives permissions to a group or to others
// is taken to be set up for sharing. Everything in it gets the same
// permissions, whatever the umask says. To share one with a group:
//
//	install -d -m 2770 -g GROUP /srv/croft
//
// Members of the group can change, end and remove every lease in it. They get
// nothing else by it: below the directory the store follows no symbolic link,
// reads regular files of bounded size only, and never waits for a pipe. Links
// on the way to the directory, and the directory itself, are followed. Solaris
// and AIX have none of this: share a directory there with trusted users only.
//
// # Limits
//
// The file system must have hard links. Every opening probes that.
//
// The store refuses folders that a program copies between machines (iCloud
// Drive, Dropbox, OneDrive and others): every machine would hold the lease in
// its own copy.
//
// On NFS a cached listing may be as old as the attribute cache allows, so a
// reader may see an old state. The server decides every change.
//
// Windows is not supported.
package dir
