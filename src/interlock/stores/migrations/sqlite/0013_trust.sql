-- Section: audit


-- Section: sensitive states


-- Section: personal data


-- Section: retention


-- Section: authorization

