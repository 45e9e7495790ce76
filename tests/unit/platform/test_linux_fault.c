/*
 * test_linux_fault.c - faults that the process serves itself, on the real system: protected and absent pages stop a thread until they are served, a
 * system call likewise, nobody hangs when a range or the file goes. Where the system forbids all of it, that it says so.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "linux_test.h"

#define PAGES 8
#define SECOND_NS UINT64_C(1000000000)

static size_t page;
static char *memory;
static struct platform_faults faults;

/* Whether the call itself is refused here, as in most containers: then platform_faults_open must say so, and there is nothing else to test. */
static bool forbidden(void) {
    int file = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (file >= 0) close(file);
    return file < 0;
}

static bool begin(bool missing, bool protect) {
    platform_init();
    page = platform_info()->page_bytes;
    errno = 77;
    enum platform_faults_status status = platform_faults_open(&faults, PLATFORM_FAULTS_PROTECT);
    assert_int_equal(errno, 77);
    if (forbidden()) {
        assert_true(status == PLATFORM_FAULTS_FORBIDDEN || status == PLATFORM_FAULTS_UNSUPPORTED);
        return false;
    }
    assert_int_equal(status, PLATFORM_FAULTS_OK);
    memory = platform_reserve(NULL, PAGES * page, page);
    assert_non_null(memory);
    assert_true(platform_commit(memory, PAGES * page));
    if (!missing) memset(memory, 1, PAGES * page);
    assert_int_equal(platform_faults_register(&faults, memory, PAGES * page, missing, protect), PLATFORM_FAULTS_OK);
    return true;
}

static void end(void) {
    platform_faults_close(&faults);
    platform_unreserve(memory, PAGES * page);
}

struct writer {
    char *at;
    char value, before;
    bool done;
    uint32_t number;
};

static void *write_there(void *argument) {
    struct writer *writer = argument;
    __atomic_store_n(&writer->number, platform_thread_self(), __ATOMIC_RELAXED);
    writer->before = *(volatile char *)writer->at;
    *(volatile char *)writer->at = writer->value;
    __atomic_store_n(&writer->done, true, __ATOMIC_RELEASE);
    return NULL;
}

static struct platform_fault next_fault(void) {
    struct platform_fault event;
    unsigned got;
    assert_int_equal(platform_faults_read(&faults, &event, 1, 10 * SECOND_NS, &got), PLATFORM_FAULTS_OK);
    assert_int_equal(got, 1);
    return event;
}

static void a_write_to_a_protected_page_waits(void **state) {
    (void)state;
    if (!begin(false, true)) return;
    struct writer writer = {.at = memory + 2 * page + 5, .value = 9};
    pthread_t thread;
    assert_int_equal(platform_faults_protect(&faults, memory, PAGES * page, true), PLATFORM_FAULTS_OK);
    assert_int_equal(pthread_create(&thread, NULL, write_there, &writer), 0);
    struct platform_fault event = next_fault();
    assert_ptr_equal(event.page, memory + 2 * page);
    assert_true(event.write && event.protect);
    if ((faults.features & PLATFORM_FAULTS_THREAD) != 0) assert_int_equal(event.thread, writer.number);
    assert_int_equal(memory[2 * page + 5], 1); /* it can be read, and has not changed */
    assert_false(__atomic_load_n(&writer.done, __ATOMIC_ACQUIRE));
    assert_int_equal(platform_faults_protect(&faults, memory + 2 * page, page, false), PLATFORM_FAULTS_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(memory[2 * page + 5], 9);
    end();
}

static void an_absent_page_comes_when_it_is_given(void **state) {
    (void)state;
    if (!begin(true, true)) return;
    struct writer copied = {.at = memory + page, .value = 3}, zeroed = {.at = memory + 4 * page, .value = 4};
    static char source[65536] __attribute__((aligned(65536)));
    size_t done;
    pthread_t thread;
    memset(source, 7, sizeof source);
    assert_int_equal(pthread_create(&thread, NULL, write_there, &copied), 0);
    struct platform_fault event = next_fault();
    assert_ptr_equal(event.page, memory + page);
    assert_false(event.write || event.protect);
    assert_int_equal(platform_faults_copy(&faults, event.page, source, page, true, &done), PLATFORM_FAULTS_OK);
    assert_int_equal(done, page);
    event = next_fault(); /* it came protected: now the write */
    assert_true(event.write && event.protect);
    assert_int_equal(platform_faults_protect(&faults, event.page, page, false), PLATFORM_FAULTS_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(copied.before, 7);
    assert_int_equal(memory[page], 3);
    assert_int_equal(platform_faults_copy(&faults, memory, source, 4 * page, false, &done), PLATFORM_FAULTS_TAKEN);
    assert_int_equal(done, page); /* up to the page that is there */
    assert_int_equal(pthread_create(&thread, NULL, write_there, &zeroed), 0);
    event = next_fault();
    assert_int_equal(platform_faults_zero(&faults, event.page, page, &done), PLATFORM_FAULTS_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(zeroed.before, 0);
    end();
}

static void who_waits_goes_on_when_the_range_or_the_file_goes(void **state) {
    (void)state;
    for (int way = 0; way < 2; way++) {
        if (!begin(false, true)) return;
        struct writer writer = {.at = memory, .value = 9};
        pthread_t thread;
        assert_int_equal(platform_faults_protect(&faults, memory, PAGES * page, true), PLATFORM_FAULTS_OK);
        assert_int_equal(pthread_create(&thread, NULL, write_there, &writer), 0);
        next_fault();
        if (way == 0)
            assert_int_equal(platform_faults_unregister(&faults, memory, PAGES * page, true), PLATFORM_FAULTS_OK);
        else
            platform_faults_close(&faults);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(memory[0], 9);
        end();
    }
}

static void a_file_that_the_program_took_is_left_alone(void **state) {
    (void)state;
    if (!begin(false, true)) return;
    struct platform_fault event;
    unsigned got;
    assert_int_equal(platform_faults_read(&faults, &event, 1, 0, &got), PLATFORM_FAULTS_OK);
    assert_int_equal(got, 0); /* none, and no wait */
    int other = open("/dev/null", O_RDWR | O_CLOEXEC), number = faults.file;
    assert_true(other >= 0 && dup2(other, number) == number);
    assert_int_equal(platform_faults_read(&faults, &event, 1, SECOND_NS, &got), PLATFORM_FAULTS_GONE);
    assert_int_equal(platform_faults_protect(&faults, memory, page, true), PLATFORM_FAULTS_GONE);
    assert_int_equal(platform_faults_register(&faults, memory, page, true, false), PLATFORM_FAULTS_GONE);
    assert_int_equal(platform_faults_copy(&faults, memory, memory + page, page, false, NULL), PLATFORM_FAULTS_GONE);
    platform_faults_close(&faults);
    assert_int_equal(write(number, "", 1), 1); /* the program's file is open still */
    close(number);
    close(other);
    memory[0] = 2;
    end();
}

static void a_system_call_waits_or_is_refused(void **state) {
    (void)state;
    if (!begin(false, true)) return;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(platform_faults_protect(&faults, memory, PAGES * page, true), PLATFORM_FAULTS_OK);
    if ((faults.features & PLATFORM_FAULTS_IN_KERNEL) == 0) {
        assert_int_equal(read(ends[0], memory, 1), -1);
        assert_int_equal(errno, EFAULT);
    } else {
        platform_faults_close(&faults); /* with nobody to serve it, it would wait */
        assert_int_equal(read(ends[0], memory, 1), 1);
    }
    close(ends[0]);
    close(ends[1]);
    end();
}

/* Also to pages of another place modulo anything; what is absent stays absent, and a page that a child has too stays where it is. */
static void pages_move_one_by_one(void **state) {
    (void)state;
    size_t moved = 1;
    if (!begin(false, true)) return;
    bool can = (faults.features & PLATFORM_FAULTS_MOVE) != 0;
    end();
    if (!can) {
        assert_int_equal(platform_faults_open(&faults, PLATFORM_FAULTS_MOVE), PLATFORM_FAULTS_UNSUPPORTED);
        return;
    }
    assert_int_equal(platform_faults_open(&faults, PLATFORM_FAULTS_MOVE), PLATFORM_FAULTS_OK);
    memory = platform_reserve(NULL, PAGES * page, page);
    assert_true(memory != NULL && platform_commit(memory, PAGES * page));
    for (size_t i = 0; i < 3; i++)
        if (i != 1) memset(memory + i * page, (int)i + 1, page);
    char *to = memory + 5 * page;
    assert_int_equal(platform_faults_move(&faults, to, memory, 3 * page, &moved), PLATFORM_FAULTS_BAD_RANGE); /* not registered */
    assert_int_equal(moved, 0);
    assert_int_equal(platform_faults_register(&faults, to, 3 * page, true, false), PLATFORM_FAULTS_OK);
    errno = 77;
    assert_int_equal(platform_faults_move(&faults, to, memory, 3 * page, &moved), PLATFORM_FAULTS_OK);
    assert_int_equal(errno, 77);
    assert_int_equal(moved, 3 * page);
    assert_int_equal(platform_faults_unregister(&faults, to, 3 * page, false), PLATFORM_FAULTS_OK);
    assert_true(to[0] == 1 && to[page] == 0 && to[2 * page] == 3 && to[3 * page - 1] == 3);
    assert_true(memory[0] == 0 && memory[2 * page] == 0);
    /* Stops at a page that is there. */
    memset(memory, 4, 2 * page);
    assert_true(platform_release(to, page));
    assert_int_equal(platform_faults_register(&faults, to, 3 * page, true, false), PLATFORM_FAULTS_OK);
    assert_int_equal(platform_faults_move(&faults, to, memory, 3 * page, &moved), PLATFORM_FAULTS_TAKEN);
    assert_int_equal(moved, page);
    assert_true(to[0] == 4 && memory[page] == 4);
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_to_a_protected_page_waits),
        cmocka_unit_test(an_absent_page_comes_when_it_is_given),
        cmocka_unit_test(who_waits_goes_on_when_the_range_or_the_file_goes),
        cmocka_unit_test(a_file_that_the_program_took_is_left_alone),
        cmocka_unit_test(a_system_call_waits_or_is_refused),
        cmocka_unit_test(pages_move_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
