// Package dir keeps leases in a directory, and guards files. This comment is about the leases: any number of processes, on one machine or on several that
// mount the directory, share them without a server and without a lock that a stopped process could hold.
//
// # Layout
//
//	croft-store.json                                      what this is, and its format
//	keys/3f/3f…(SHA-256 of the key)/LIFE/00…0017.json     one version of the key's record; the highest number counts
//	tmp/                                                  what is being made, on the same file system
//	acts/3f…(SHA-256 of the key)                          the key that an operator acted on
//
// A version file is the record in one line of JSON and that line's checksum in a second. LIFE is a name that is used once, made of the time and of
// chance. A key's folder holds the folder of its present life and nothing else; a life's folder holds versions and nothing else.
//
// # Every change is one step
//
// To follow version n with the next record, a finished and synced file is linked from tmp to the name n+1: link(2) fails if the name exists, so of
// many only one gets it. Then the folder is listed again. The change counts only if n+1 is now the highest version; otherwise the answer is
// "conflict", and the caller reads anew and applies the law anew. That finds a change which did count and was followed at once by another's: its grant
// is in the history.
//
// The second listing is for a process that was stopped between reading n and linking n+1 while others went on and pruned that number: its link succeeds.
// But the highest version of a life is never removed, so the number of such a stray is below it when it is made and for ever after: nobody reads a stray
// as the newest version, and its maker finds out and removes it.
//
// A life begins by renaming a complete folder, first version inside, to the key's place: rename(2) fails if a folder with something in it is there. It ends by a
// tombstone: an empty folder with the name n+1, made by mkdir(2), which is as exclusive as a link and subject to the same second listing. No version follows a tombstone.
// Then the life's folder is moved to tmp in one step and removed there. Whoever does this may have been stopped for any time: the path has the life's
// name in it, which the key's next life does not have. The same goes for a linker: between its reading and its linking the key may have been dropped, or the
// store wiped, and born again; its link then fails, because the folder it names is gone. Nobody ever renames or removes the key's own folder
// but by rmdir(2), which fails when a life is in it.
//
// None of this rests on a clock, on how long something takes, or on a process going on.
//
// An empty listing is looked at again and then read as "nothing remembered". A birth does not rest on that reading: the rename decides.
//
// # What reaches the disk
//
// A file is synced before it gets its name, so a record is never torn. For grants, releases and operators' acts the folder is synced, too, before they are
// confirmed; only then are older versions pruned. For renewals and progress reports it is not: a power cut may take back the newest ones, and the lease then ends
// earlier than its holder believed. On a local disk all holders died in the same power cut; over NFS the server syncs by itself. Older versions stay until
// there are more than 16, and then the folder is synced before they are pruned.
//
// A process may be killed after it has given a name and before it has synced it. So whoever finds a request done already syncs before it says so; whoever follows a key's first version, which
// is pruned only then, syncs the folders that lead to it; the marker croft-store.json is made after all else that an opening makes has been synced. A dropped life
// is removed from tmp only when it has been synced there: a power cut could else bring it back without its newest version.
//
// A damaged version is an error that names the file and the repair ([DamagedError]), never a reset.
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
// Time is the file system's own: the modification time that an unnamed probe file gets when it is touched. Over NFS it is the server's. It is read
// after the record, so a record is never taken to be younger than it is.
//
// # Permissions
//
// A directory that the store makes is its user's alone: 0700, files 0600. A directory that was there before and gives permissions to a group or to others is
// taken to be set up for sharing: everything in it gets the same permissions, whatever the umask says. To share one with a group:
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
// The file system must have hard links; that is probed at every opening. Folders that a program copies between machines (iCloud Drive, Dropbox, OneDrive and
// others) are refused: every machine would hold the lease in its own copy. On NFS a cached listing may be old for as long as attributes are cached, so a reader may see what
// was; a change is decided by the server. Windows is not supported.
package dir
