/*
 * The protocol of Croft in Promela: one lease, clients, two guarded resources,
 * and a store that may forget.
 *
 * The model has no time, and so the strongest adversary. A lease may expire at
 * any moment after it was granted. A client may be stopped between any two of
 * its steps, for any time or for ever. No deadline protects anybody here; only
 * tokens and fences decide. A law that holds here holds under any clock.
 *
 * The network keeps every message for ever. A message may arrive late, again,
 * out of order or never. So no client needs to send anything twice, to lose
 * anything or to die: the fate of messages covers all that. Much needs no
 * variable then. An acquire may arrive at any time, and so may the answer to
 * one that was granted. A release does nothing that a passed deadline does not
 * do.
 *
 * A client that asks once more uses a new secret, so to all others it is a new
 * client. So a client is a secret here, and there are as many as terms. This
 * allows more than fewer clients that ask again.
 *
 * Define one of these names to make a broken twin:
 *   NO_FENCE   a resource admits every write
 *   NO_ANCHOR  the next token is the last one that the store remembers, plus
 *              one, whatever the clock says
 *   RESURRECT  the store grants a secret that it has granted before: it accepts
 *              a late copy of a request
 *   NO_RAISE   a new owner reads before it has raised the fence
 *   ANY_GRANT  a resource admits a token equal to its mark's, whatever the
 *              grant (with SKEW)
 * The checker must find each. SKEW drops what anchoring assumes of the clock;
 * see "The store forgets".
 */

#ifndef TERMS
#define TERMS   4	/* grants in all: 3 or 4 */
#endif
#ifndef REWINDS
#define REWINDS 2	/* how often the store may forget */
#endif

#ifdef SKEW
#define SKEWED 1
#else
#define SKEWED 0
#endif

#define has(set, n) ((set >> n) & 1)
#define max(a, b)   (a > b -> a : b)

/* ---- The real state: the store and the resources ---- */

/* The store's record is the newest term it remembers; 0: it remembers none. */
byte now;
bit  held;
byte clock;			/* the lowest token that the store's clock allows */

byte token[TERMS + 1];		/* the stamp of a term is its token ... */
byte grant[TERMS + 1];		/* ... and its grant, the fingerprint of its secret */
byte history[TERMS + 1];	/* the secrets granted so far when it began, with its own */

typedef Resource {
	byte token, grant;	/* the mark */
	byte content;		/* the term whose write was admitted last; 0: none */
	/* The write of each term that is in flight: 1 + the content that it was
	   made from; 0: none. */
	byte sent[TERMS + 1]
};
Resource at[2];

/* ---- The state of the proof: counts, bounds and maxima ---- */

/* Counts so far. Secrets are numbered in the order of their first grants: they
   are all alike before. */
byte terms, secrets, rewinds;
byte newest;			/* the highest token ever given */
/* At each resource, the latest term that wrote or raised the fence. */
byte latest[2];

/* ---- The store: the law of ownership ---- */

#ifdef RESURRECT
#define mayHave(s) (s <= secrets + 1)
#else
#define mayHave(s) (s <= secrets + 1 && !has(history[now], s))
#endif
#ifdef NO_ANCHOR
#define nextToken  (token[now] + 1)
#else
#define nextToken  max(token[now] + 1, clock)
#endif

/* An acquire arrives. If the key is held, it changes nothing. If its own grant
   is alive, the store just answers again. */
#define acquire(s) d_step { terms < TERMS && !held && mayHave(s) -> \
	terms++; \
	token[terms] = nextToken; grant[terms] = s; history[terms] = history[now] | (1 << s); \
	printf("the store grants term %d, token %d, to secret %d\n", terms, token[terms], s); \
	assert(!has(history[now], s));				/* law 1: a secret is granted once */ \
	assert(SKEWED || token[terms] > newest);		/* law 2: tokens rise, also after the store forgot */ \
	newest = max(token[terms], newest); secrets = max(s, secrets); \
	now = terms; held = 1 }

/* The store forgets: a replica that lagged takes over, a backup is restored, or
   everything is wiped. The store is back at any earlier term, which may then
   seem to be held. Anchoring assumes that the clock has passed every token that
   was given. Here the clock shows the lowest time for which that is true. */
#define forget(t) d_step { rewinds < REWINDS && t <= terms && t != now -> \
	printf("the store forgets what came after term %d\n", t); \
	rewinds++; now = t; held = (t != 0); clock = (SKEWED -> clock : newest + 1) }

active proctype Store() {
end:	do
	:: acquire(1) :: acquire(2) :: acquire(3)
	/* The deadline passes, the holder releases, or an operator revokes. */
	:: d_step { held -> held = 0; printf("term %d is over\n", now) }
	:: forget(0) :: forget(1) :: forget(2) :: forget(3)
#if TERMS == 4
	:: acquire(4) :: forget(4)
#endif
	od
}

/* ---- The resources: the law of writing ---- */

#ifdef NO_FENCE
#define admits(r, t) 1
#else
#ifdef ANY_GRANT
#define admits(r, t) (token[t] >= at[r].token)
#else
#define admits(r, t) (token[t] > at[r].token || (token[t] == at[r].token && grant[t] == at[r].grant))
#endif
#endif

/* Law 3: no older write after a newer one. While the clock keeps its promise,
   this holds for terms. For tokens it always holds, and of each token only one
   grant is admitted. */
#define advance(r, t) \
	assert(SKEWED || t >= latest[r]); \
	assert(token[t] > at[r].token || (token[t] == at[r].token && grant[t] == at[r].grant)); \
	latest[r] = max(t, latest[r]); \
	at[r].token = token[t]; at[r].grant = grant[t]

/* A write arrives. No update is lost: the write replaces the content that its
   writer has read, or an earlier copy of itself. */
#define write(r, t) d_step { at[r].sent[t] != 0 && at[r].content != t && admits(r, t) -> \
	printf("resource %d admits the write of term %d, token %d, made from the content of term %d, over that of term %d\n", \
		r, t, token[t], at[r].sent[t] - 1, at[r].content); \
	assert(at[r].sent[t] == 1 + at[r].content); \
	advance(r, t); \
	at[r].content = t }

active proctype Resources() {
end:	do
	:: write(0, 1) :: write(0, 2) :: write(0, 3)
	:: write(1, 1) :: write(1, 2) :: write(1, 3)
#if TERMS == 4
	:: write(0, 4) :: write(1, 4)
#endif
	od
}

/* ---- The clients ---- */

/* The client has got the answer that it was granted a term. Only that answer
   gives authority (law 6). A client keeps to the first such term. */
#define owns(t) (t <= terms && grant[t] == secret && (term == 0 || term == t))

/* An owner raises the fence before it first reads. If the resource refuses,
   the owner has lost the lease. */
#ifdef NO_RAISE
#define raise(r, t) d_step { owns(t) && !has(raised, r) -> \
	printf("the owner of term %d does not raise the fence of resource %d\n", t, r); \
	term = t; raised = raised | (1 << r) }
#else
#define raise(r, t) d_step { owns(t) && !has(raised, r) && admits(r, t) -> \
	printf("the owner of term %d, token %d, raises the fence of resource %d\n", t, token[t], r); \
	term = t; raised = raised | (1 << r); advance(r, t) }
#endif

/* Then the owner reads, and sends a write made from that. */
#define work(r) d_step { has(raised, r) && at[r].sent[term] == 0 -> \
	printf("the owner of term %d reads resource %d and sends its write\n", term, r); \
	at[r].sent[term] = 1 + at[r].content }

proctype Client(byte secret) {
	byte term;	/* the term it believes to hold; 0: none */
	byte raised;	/* the resources where it has raised the fence */
end:	do
	:: raise(0, 1) :: raise(0, 2) :: raise(0, 3)
	:: raise(1, 1) :: raise(1, 2) :: raise(1, 3)
#if TERMS == 4
	:: raise(0, 4) :: raise(1, 4)
#endif
	:: work(0) :: work(1)
	od
}

init {
	atomic {
		run Client(1); run Client(2); run Client(3);
#if TERMS == 4
		run Client(4)
#endif
	}
}
