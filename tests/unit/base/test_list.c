/*
 * test_list.c - intrusive lists, against an array that is changed in the same way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/list.h"

#define ITEMS 8

struct item {
    int before; /* so that the link is not at the start */
    struct list link;
    unsigned number;
};
static struct item items[ITEMS];
static struct list head;
static unsigned order[ITEMS], count; /* the reference: numbers from front to back */

static void start(void) {
    list_init(&head);
    count = 0;
    for (unsigned i = 0; i < ITEMS; i++) {
        items[i] = (struct item){.before = -1, .number = i};
        list_init(&items[i].link);
    }
}

static void assert_as_reference(void) {
    unsigned at = 0;
    LIST_FOR_EACH(&head, node) {
        assert_true(at < count);
        assert_int_equal(CONTAINER_OF(node, struct item, link)->number, order[at++]);
        assert_ptr_equal(node->next->prev, node);
        assert_ptr_equal(node->prev->next, node);
    }
    assert_int_equal(at, count);
    assert_int_equal(list_empty(&head), count == 0);
    for (const struct list *node = head.prev; node != &head; node = node->prev)
        assert_int_equal(CONTAINER_OF(node, const struct item, link)->number, order[--at]);
    assert_int_equal(at, 0);
    for (unsigned i = 0; i < ITEMS; i++) assert_int_equal(items[i].before, -1);
}

static unsigned position_of(unsigned item) {
    unsigned at = 0;
    while (at < count && order[at] != item) at++;
    return at;
}

static void put(unsigned item, bool front) {
    if (front) {
        memmove(order + 1, order, count * sizeof *order);
        order[0] = item;
        list_push_front(&head, &items[item].link);
    } else {
        order[count] = item;
        list_push_back(&head, &items[item].link);
    }
    count++;
}

static void take(unsigned item) {
    unsigned at = position_of(item);
    memmove(order + at, order + at + 1, (count - at - 1) * sizeof *order);
    count--;
    list_remove(&items[item].link);
}

static void an_empty_list_has_nothing(void **state) {
    (void)state;
    start();
    assert_as_reference();
    assert_ptr_equal(head.prev, &head);
}

static void both_ends_and_the_middle(void **state) {
    (void)state;
    start();
    put(3, true), put(4, false), put(2, true), put(5, false);
    assert_as_reference();
    take(3);
    assert_as_reference();
    take(2), take(5);
    assert_as_reference();
    take(4);
    assert_as_reference();
}

static void a_second_removal_is_harmless(void **state) {
    (void)state;
    start();
    put(0, false), put(1, false), put(2, false);
    take(1);
    assert_true(list_empty(&items[1].link));
    list_remove(&items[1].link);
    assert_as_reference();
    put(1, true);
    assert_as_reference();
}

static void long_sequences(void **state) {
    (void)state;
    start();
    uint64_t random = 1;
    for (unsigned step = 0; step < 5000; step++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned item = (unsigned)(random >> 40) % ITEMS;
        if (position_of(item) == count)
            put(item, (random >> 50 & 1) != 0);
        else
            take(item);
        assert_as_reference();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_list_has_nothing),
        cmocka_unit_test(both_ends_and_the_middle),
        cmocka_unit_test(a_second_removal_is_harmless),
        cmocka_unit_test(long_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
