// What a rank's MPI calls are and when, by MPI's profiling interface: preload it into a program that is linked to the
// same MPI library. At MPI_Finalize each rank writes FOLDER/rank-N.txt, FOLDER being LINKGAUGE_PMPI_FOLDER.
//
// With LINKGAUGE_PMPI_EVENTS=1 the file has every call as Score-P would record it, which otf2_of_events.py makes an
// OTF2 trace of; else only the time spent in MPI, which costs two readings of the clock a call.
// A line is: kind, ns, and what the table in otf2_of_events.py says of the kind.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef long long Number;

typedef struct {
  char kind;
  const char *name;
  Number ns, peer, comm, sent, received, request;
} Event;

typedef struct {
  MPI_Request handle;
  Number id, peer, bytes, comm;
  const char *name;  // of a collective
  Number sent, received;
  char kind;  // s: send, r: receive, c: collective, 0: free
  int persistent, active;
} Request;

static Event *events;
static size_t event_count, event_room;
static Request *requests;
static size_t request_count;
static MPI_Comm comms[1024];
static int comm_count;
static Number next_request = 1, in_mpi_ns, begun_ns, calls;
static int recording, depth;

static Number now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void put(Event event) {
  if (!recording) return;
  if (event_count == event_room) {
    event_room = event_room ? 2 * event_room : 1 << 16;
    events = realloc(events, event_room * sizeof *events);
    if (events == NULL) abort();
  }
  events[event_count++] = event;
}

static Number enter(const char *name) {
  Number ns = now_ns();
  if (depth++ == 0) put((Event){.kind = 'E', .name = name, .ns = ns});
  return ns;
}

static int leave(const char *name, Number since, int result) {
  Number ns = now_ns();
  if (--depth == 0) {
    put((Event){.kind = 'L', .name = name, .ns = ns});
    in_mpi_ns += ns - since;
    calls++;
  }
  return result;
}

static Number comm_id(MPI_Comm comm) {
  for (int i = comm_count - 1; i >= 0; i--)
    if (comms[i] == comm) return i;
  if (comm_count == 1024) abort();
  comms[comm_count] = comm;
  int size = 0;
  MPI_Group group, world;
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  PMPI_Group_size(group, &size);
  int *mine = malloc(2 * size * sizeof *mine), *theirs = mine + size;
  for (int i = 0; i < size; i++) mine[i] = i;
  PMPI_Group_translate_ranks(group, size, mine, world, theirs);
  for (int i = 0; recording && i < size; i++)
    put((Event){.kind = 'G', .comm = comm_count, .peer = theirs[i]});
  free(mine);
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  return comm_count++;
}

static int size_of(MPI_Comm comm) {
  int size;
  PMPI_Comm_size(comm, &size);
  return size;
}

static int rank_in(MPI_Comm comm) {
  int rank;
  PMPI_Comm_rank(comm, &rank);
  return rank;
}

static Number bytes_of(Number count, MPI_Datatype type) {
  int size;
  PMPI_Type_size(type, &size);
  return count * size;
}

static Number total(const int *counts, MPI_Comm comm, MPI_Datatype type) {
  Number sum = 0;
  for (int i = size_of(comm) - 1; i >= 0; i--) sum += counts[i];
  return bytes_of(sum, type);
}

// --- requests

static Request *request_slot(MPI_Request handle) {
  for (size_t i = 0; i < request_count; i++)
    if (requests[i].kind && requests[i].handle == handle) return &requests[i];
  return NULL;
}

static Request *new_request(Request made) {
  size_t i = 0;
  while (i < request_count && requests[i].kind) i++;
  if (i == request_count) {
    request_count = request_count ? 2 * request_count : 256;
    requests = realloc(requests, request_count * sizeof *requests);
    if (requests == NULL) abort();
    memset(requests + i, 0, (request_count - i) * sizeof *requests);
  }
  requests[i] = made;
  return &requests[i];
}

static void start(Request *of) {
  of->id = next_request++;
  of->active = 1;
  if (of->kind == 's')
    put((Event){'i', NULL, now_ns(), of->peer, of->comm, of->bytes, 0, of->id});
  else
    put((Event){.kind = of->kind == 'r' ? 'q' : 'n', .ns = now_ns(), .request = of->id});
}

static void begin_message(char kind, MPI_Request handle, int peer, int count, MPI_Datatype type, MPI_Comm comm,
                          int persistent) {
  if (!recording || peer == MPI_PROC_NULL) return;
  Request *made = new_request((Request){.handle = handle, .peer = peer, .bytes = bytes_of(count, type),
                                        .comm = comm_id(comm), .kind = kind, .persistent = persistent});
  if (!persistent) start(made);
}

static void finish(Request *of, const MPI_Status *status) {
  if (of == NULL || !of->active) return;
  if (of->kind == 's') {
    put((Event){.kind = 'c', .ns = now_ns(), .request = of->id});
  } else if (of->kind == 'r') {
    int bytes = 0;
    PMPI_Get_count(status, MPI_BYTE, &bytes);
    Number got = bytes == MPI_UNDEFINED ? of->bytes : bytes;
    put((Event){'r', NULL, now_ns(), status->MPI_SOURCE, of->comm, 0, got, of->id});
  } else {
    put((Event){'m', of->name, now_ns(), of->peer, of->comm, of->sent, of->received, of->id});
  }
  of->active = 0;
  if (!of->persistent) of->kind = 0;
}

// --- the rank's life

static void begin(void) {
  const char *asked = getenv("LINKGAUGE_PMPI_EVENTS");
  recording = asked != NULL && strcmp(asked, "1") == 0;
  comm_id(MPI_COMM_WORLD);
  PMPI_Barrier(MPI_COMM_WORLD);  // one beginning, of which every rank's time counts
  begun_ns = now_ns();
}

int MPI_Init(int *argc, char ***argv) {
  int result = PMPI_Init(argc, argv);
  begin();
  return result;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  int result = PMPI_Init_thread(argc, argv, required, provided);
  begin();
  return result;
}

int MPI_Finalize(void) {
  Number ended = now_ns();
  const char *folder = getenv("LINKGAUGE_PMPI_FOLDER");
  char path[4096];
  snprintf(path, sizeof path, "%s/rank-%d.txt", folder ? folder : ".", rank_in(MPI_COMM_WORLD));
  FILE *file = fopen(path, "w");
  if (file == NULL) {
    perror(path);
    PMPI_Abort(MPI_COMM_WORLD, 1);
  }
  fprintf(file, "T %lld %lld %lld %lld %d\n", begun_ns, ended, in_mpi_ns, calls, size_of(MPI_COMM_WORLD));
  for (size_t i = 0; i < event_count; i++) {
    const Event *e = &events[i];
    fprintf(file, "%c %lld %s %lld %lld %lld %lld %lld\n", e->kind, e->ns, e->name ? e->name : "-", e->peer, e->comm,
            e->sent, e->received, e->request);
  }
  if (fclose(file) != 0) perror(path);
  return PMPI_Finalize();
}

// --- messages

int MPI_Send(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
  Number since = enter("MPI_Send");
  if (recording && peer != MPI_PROC_NULL)
    put((Event){'s', NULL, now_ns(), peer, comm_id(comm), bytes_of(count, type), 0, 0});
  return leave("MPI_Send", since, PMPI_Send(data, count, type, peer, tag, comm));
}

int MPI_Ssend(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
  Number since = enter("MPI_Ssend");
  if (recording && peer != MPI_PROC_NULL)
    put((Event){'s', NULL, now_ns(), peer, comm_id(comm), bytes_of(count, type), 0, 0});
  return leave("MPI_Ssend", since, PMPI_Ssend(data, count, type, peer, tag, comm));
}

static void received(const MPI_Status *status, MPI_Comm comm) {
  int bytes = 0;
  if (!recording || status->MPI_SOURCE == MPI_PROC_NULL) return;
  PMPI_Get_count(status, MPI_BYTE, &bytes);
  put((Event){'v', NULL, now_ns(), status->MPI_SOURCE, comm_id(comm), 0, bytes, 0});
}

int MPI_Recv(void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Status *status) {
  Number since = enter("MPI_Recv");
  MPI_Status own, *told = status == MPI_STATUS_IGNORE ? &own : status;
  int result = PMPI_Recv(data, count, type, peer, tag, comm, told);
  received(told, comm);
  return leave("MPI_Recv", since, result);
}

int MPI_Sendrecv(const void *out, int outs, MPI_Datatype out_type, int to, int out_tag, void *in, int ins,
                 MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status *status) {
  Number since = enter("MPI_Sendrecv");
  MPI_Status own, *told = status == MPI_STATUS_IGNORE ? &own : status;
  if (recording && to != MPI_PROC_NULL)
    put((Event){'s', NULL, now_ns(), to, comm_id(comm), bytes_of(outs, out_type), 0, 0});
  int result = PMPI_Sendrecv(out, outs, out_type, to, out_tag, in, ins, in_type, from, in_tag, comm, told);
  received(told, comm);
  return leave("MPI_Sendrecv", since, result);
}

#define BEGUN(NAME, KIND, CONST, PERSISTENT)                                                                        \
  int MPI_##NAME(CONST void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,                  \
                 MPI_Request *request) {                                                                            \
    Number since = enter("MPI_" #NAME);                                                                             \
    int result = PMPI_##NAME(data, count, type, peer, tag, comm, request);                                          \
    begin_message(KIND, *request, peer, count, type, comm, PERSISTENT);                                             \
    return leave("MPI_" #NAME, since, result);                                                                      \
  }
BEGUN(Isend, 's', const, 0)
BEGUN(Irecv, 'r', , 0)
BEGUN(Send_init, 's', const, 1)
BEGUN(Recv_init, 'r', , 1)

int MPI_Start(MPI_Request *request) {
  Number since = enter("MPI_Start");
  Request *of = recording ? request_slot(*request) : NULL;
  if (of) start(of);
  return leave("MPI_Start", since, PMPI_Start(request));
}

int MPI_Startall(int count, MPI_Request *all) {
  Number since = enter("MPI_Startall");
  for (int i = 0; recording && i < count; i++) {
    Request *of = request_slot(all[i]);
    if (of) start(of);
  }
  return leave("MPI_Startall", since, PMPI_Startall(count, all));
}

int MPI_Request_free(MPI_Request *request) {
  Request *of = recording ? request_slot(*request) : NULL;
  if (of) of->kind = 0;
  return PMPI_Request_free(request);
}

// --- their ends: what a request was is looked up before it ends, for its handle is used again

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
  Number since = enter("MPI_Wait");
  MPI_Status own, *told = status == MPI_STATUS_IGNORE ? &own : status;
  Request *of = recording ? request_slot(*request) : NULL;
  int result = PMPI_Wait(request, told);
  finish(of, told);
  return leave("MPI_Wait", since, result);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
  Number since = enter("MPI_Test");
  MPI_Status own, *told = status == MPI_STATUS_IGNORE ? &own : status;
  Request *of = recording ? request_slot(*request) : NULL;
  int result = PMPI_Test(request, flag, told);
  if (*flag) finish(of, told);
  return leave("MPI_Test", since, result);
}

static int wait_all(const char *name, int count, MPI_Request *all, int *flag, MPI_Status *statuses) {
  Number since = enter(name);
  MPI_Status *told = statuses == MPI_STATUSES_IGNORE ? malloc((count + 1) * sizeof *told) : statuses;
  size_t *of = malloc((count + 1) * sizeof *of);
  for (int i = 0; i < count; i++) {
    Request *slot = recording ? request_slot(all[i]) : NULL;
    of[i] = slot ? (size_t)(slot - requests) : (size_t)-1;
  }
  int result = flag ? PMPI_Testall(count, all, flag, told) : PMPI_Waitall(count, all, told);
  for (int i = 0; i < count && (flag == NULL || *flag); i++)
    if (of[i] != (size_t)-1) finish(&requests[of[i]], &told[i]);
  free(of);
  if (told != statuses) free(told);
  return leave(name, since, result);
}

int MPI_Waitall(int count, MPI_Request *all, MPI_Status *statuses) {
  return wait_all("MPI_Waitall", count, all, NULL, statuses);
}

int MPI_Testall(int count, MPI_Request *all, int *flag, MPI_Status *statuses) {
  return wait_all("MPI_Testall", count, all, flag, statuses);
}

int MPI_Waitany(int count, MPI_Request *all, int *index, MPI_Status *status) {
  Number since = enter("MPI_Waitany");
  MPI_Status own, *told = status == MPI_STATUS_IGNORE ? &own : status;
  MPI_Request *before = malloc((count + 1) * sizeof *before);
  memcpy(before, all, count * sizeof *before);
  int result = PMPI_Waitany(count, all, index, told);
  if (recording && *index != MPI_UNDEFINED) finish(request_slot(before[*index]), told);
  free(before);
  return leave("MPI_Waitany", since, result);
}

// --- collectives: sizes as Score-P counts them

static int collective(const char *name, Number since, int result, MPI_Comm comm, int root, Number sent, Number got) {
  put((Event){'k', name, now_ns(), root, recording ? comm_id(comm) : 0, sent, got, 0});
  return leave(name, since, result);
}

static void begin_collective(const char *name, MPI_Request handle, MPI_Comm comm, int root, Number sent, Number got) {
  if (recording)
    start(new_request((Request){.handle = handle, .peer = root, .comm = comm_id(comm), .name = name, .sent = sent,
                                .received = got, .kind = 'c'}));
}

#define COLLECTIVE(NAME, PARAMETERS, ARGUMENTS, ROOT, SENT, RECEIVED)                                               \
  int MPI_##NAME PARAMETERS {                                                                                       \
    Number since = enter("MPI_" #NAME);                                                                             \
    int result = PMPI_##NAME ARGUMENTS;                                                                             \
    return collective("MPI_" #NAME, since, result, comm, ROOT, SENT, RECEIVED);                                     \
  }
#define BEGUN_COLLECTIVE(NAME, PARAMETERS, ARGUMENTS, ROOT, SENT, RECEIVED)                                         \
  int MPI_##NAME PARAMETERS {                                                                                       \
    Number since = enter("MPI_" #NAME);                                                                             \
    int result = PMPI_##NAME ARGUMENTS;                                                                             \
    begin_collective("MPI_" #NAME, *request, comm, ROOT, SENT, RECEIVED);                                           \
    return leave("MPI_" #NAME, since, result);                                                                      \
  }
#define N size_of(comm)
#define OF(COUNT, TYPE) bytes_of(COUNT, TYPE)
#define MINE(COUNTS, TYPE) OF(COUNTS[rank_in(comm)], TYPE)
#define AT_ROOT(BYTES) (rank_in(comm) == root ? (BYTES) : 0)
#define OTHERS(BUFFER) (BUFFER == MPI_IN_PLACE ? N - 1 : N)
#define LESS(BUFFER, BYTES) (BUFFER == MPI_IN_PLACE ? (BYTES) : 0)
#define UNLESS(BUFFER, BYTES) (BUFFER == MPI_IN_PLACE ? 0 : (BYTES))
#define SAME const void *in, void *out, int count, MPI_Datatype type, MPI_Op op
#define BOTH const void *in, int ins, MPI_Datatype in_type, void *out, int outs, MPI_Datatype out_type
#define ONE_V                                                                                                       \
  const void *in, int ins, MPI_Datatype in_type, void *out, const int *outs, const int *at, MPI_Datatype out_type
#define BOTH_V                                                                                                      \
  const void *in, const int *ins, const int *in_at, MPI_Datatype in_type, void *out, const int *outs,               \
      const int *out_at, MPI_Datatype out_type

COLLECTIVE(Barrier, (MPI_Comm comm), (comm), 0, 0, 0)
BEGUN_COLLECTIVE(Ibarrier, (MPI_Comm comm, MPI_Request *request), (comm, request), 0, 0, 0)

COLLECTIVE(Bcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm), (data, count, type, root, comm),
           root, AT_ROOT(N * OF(count, type)), OF(count, type))

COLLECTIVE(Reduce, (SAME, int root, MPI_Comm comm), (in, out, count, type, op, root, comm), root,
           UNLESS(in, OF(count, type)), AT_ROOT(OTHERS(in) * OF(count, type)))

COLLECTIVE(Allreduce, (SAME, MPI_Comm comm), (in, out, count, type, op, comm), 0, OTHERS(in) * OF(count, type),
           OTHERS(in) * OF(count, type))
BEGUN_COLLECTIVE(Iallreduce, (SAME, MPI_Comm comm, MPI_Request *request), (in, out, count, type, op, comm, request), 0,
                 OTHERS(in) * OF(count, type), OTHERS(in) * OF(count, type))

COLLECTIVE(Gather, (BOTH, int root, MPI_Comm comm), (in, ins, in_type, out, outs, out_type, root, comm), root,
           UNLESS(in, OF(ins, in_type)), AT_ROOT(OTHERS(in) * OF(outs, out_type)))
COLLECTIVE(Scatter, (BOTH, int root, MPI_Comm comm), (in, ins, in_type, out, outs, out_type, root, comm), root,
           AT_ROOT(OTHERS(out) * OF(ins, in_type)), UNLESS(out, OF(outs, out_type)))
COLLECTIVE(Gatherv, (ONE_V, int root, MPI_Comm comm), (in, ins, in_type, out, outs, at, out_type, root, comm), root,
           UNLESS(in, OF(ins, in_type)), AT_ROOT(total(outs, comm, out_type) - LESS(in, MINE(outs, out_type))))

COLLECTIVE(Allgather, (BOTH, MPI_Comm comm), (in, ins, in_type, out, outs, out_type, comm), 0,
           OTHERS(in) * OF(outs, out_type), OTHERS(in) * OF(outs, out_type))
COLLECTIVE(Allgatherv, (ONE_V, MPI_Comm comm), (in, ins, in_type, out, outs, at, out_type, comm), 0,
           OTHERS(in) * MINE(outs, out_type), total(outs, comm, out_type) - LESS(in, MINE(outs, out_type)))

COLLECTIVE(Alltoall, (BOTH, MPI_Comm comm), (in, ins, in_type, out, outs, out_type, comm), 0,
           OTHERS(in) * OF(outs, out_type), OTHERS(in) * OF(outs, out_type))
BEGUN_COLLECTIVE(Ialltoall, (BOTH, MPI_Comm comm, MPI_Request *request),
                 (in, ins, in_type, out, outs, out_type, comm, request), 0, OTHERS(in) * OF(outs, out_type),
                 OTHERS(in) * OF(outs, out_type))
COLLECTIVE(Alltoallv, (BOTH_V, MPI_Comm comm), (in, ins, in_at, in_type, out, outs, out_at, out_type, comm), 0,
           in == MPI_IN_PLACE ? total(outs, comm, out_type) - MINE(outs, out_type) : total(ins, comm, in_type),
           total(outs, comm, out_type) - LESS(in, MINE(outs, out_type)))

COLLECTIVE(Reduce_scatter,
           (const void *in, void *out, const int *counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           (in, out, counts, type, op, comm), 0, total(counts, comm, type) - LESS(in, MINE(counts, type)),
           OTHERS(in) * MINE(counts, type))
COLLECTIVE(Reduce_scatter_block, (SAME, MPI_Comm comm), (in, out, count, type, op, comm), 0,
           OTHERS(in) * OF(count, type), OTHERS(in) * OF(count, type))

COLLECTIVE(Scan, (SAME, MPI_Comm comm), (in, out, count, type, op, comm), 0, (N - rank_in(comm)) * OF(count, type),
           (rank_in(comm) + 1) * OF(count, type))
COLLECTIVE(Exscan, (SAME, MPI_Comm comm), (in, out, count, type, op, comm), 0,
           (N - rank_in(comm) - 1) * OF(count, type), rank_in(comm) * OF(count, type))

int MPI_Comm_free(MPI_Comm *comm) {
  MPI_Comm before = *comm;
  int result = PMPI_Comm_free(comm);
  for (int i = 0; i < comm_count; i++)
    if (comms[i] == before) comms[i] = MPI_COMM_NULL;  // its handle may stand for another one later
  return result;
}
