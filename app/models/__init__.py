"""Models as the window knows them: rows, labels, selection and the switch from one to another."""
