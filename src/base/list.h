/*
 * list.h - intrusive circular doubly linked lists. The owner of a list says which lock guards it.
 */
#ifndef STRATA_BASE_LIST_H
#define STRATA_BASE_LIST_H

#include "base/base.h"

struct list {
    struct list *next;
    struct list *prev;
};

STRATA_INLINE void list_init(struct list *head) { head->next = head->prev = head; }
STRATA_INLINE bool list_empty(const struct list *head) { return head->next == head; }

STRATA_INLINE void list_insert_between(struct list *node, struct list *prev, struct list *next) {
    node->prev = prev;
    node->next = next;
    prev->next = node;
    next->prev = node;
}
STRATA_INLINE void list_push_front(struct list *head, struct list *node) { list_insert_between(node, head, head->next); }
STRATA_INLINE void list_push_back(struct list *head, struct list *node) { list_insert_between(node, head->prev, head); }

/* Unlinks a node and leaves it as an empty list of its own, so that a second removal is harmless. */
STRATA_INLINE void list_remove(struct list *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#define LIST_FOR_EACH(head, node) for (struct list *node = (head)->next; node != (head); node = node->next)

#endif
